"""`transom config schema`: the JSON Schema of config.yaml on standard output."""

import json
import sys

from transom.proxy.config.schema import Config


def config_schema() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of config.yaml."""
    schema = Config.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Transom's config.yaml"}


def print_schema() -> None:
    """Print the schema."""
    sys.stdout.write(json.dumps(config_schema(), indent=2) + "\n")
