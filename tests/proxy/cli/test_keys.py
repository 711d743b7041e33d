"""`transom keys new`."""

import json

from typer.testing import CliRunner

from transom.proxy.cli.app import app
from transom.proxy.cli.keys import new_key
from transom.proxy.config.load import from_mapping
from transom.proxy.config.settings import compile_settings


def test_the_hash_lets_the_key_in() -> None:
    made = json.loads(CliRunner().invoke(app, ["keys", "new", "--json"]).output)
    settings = compile_settings(from_mapping({"tenants": {"acme": {"keys": [made["hash"]]}}}, environment={}))
    tenant = settings.tenant_for_key(made["key"])
    assert tenant is not None
    assert tenant.name == "acme"


def test_for_people() -> None:
    lines = CliRunner().invoke(app, ["keys", "new"]).output.splitlines()
    assert lines[0].startswith("key:  tsm-")
    assert lines[1].startswith("hash: sha256:")


def test_keys_are_long_visible_and_never_the_same() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) == 47 and key.isascii() and key.isprintable() for key in keys)
