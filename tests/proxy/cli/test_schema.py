"""`transom config schema`."""

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from typer.testing import CliRunner

from transom.proxy.cli.app import app
from transom.proxy.cli.schema import config_schema

SHIPPED = Path(__file__).parents[3] / "config.yaml"


def test_it_prints_the_schema() -> None:
    assert json.loads(CliRunner().invoke(app, ["config", "schema"]).output) == config_schema()


def test_it_is_a_schema_the_shipped_file_meets() -> None:
    jsonschema.Draft202012Validator.check_schema(config_schema())
    jsonschema.validate(yaml.safe_load(SHIPPED.read_text("utf-8")), config_schema())


@pytest.mark.parametrize("wrong", [{"server": {"prt": 1}}, {"policies": {"a": {"trim_to": 2}}}, {"model_list": [{}]}])
def test_it_refuses_what_the_proxy_refuses(wrong: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, config_schema())
