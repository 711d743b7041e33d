"""The schema: defaults of every section, hashed keys, descriptions."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel, ValidationError

from transom.proxy.config.model_entry import LiteLLMParams, ModelEntry, ModelInfo
from transom.proxy.config.schema import (
    Admin,
    Config,
    Limits,
    Server,
    Session,
    Storage,
    TenantEntry,
    TenantLimits,
    hash_key,
)


def test_defaults() -> None:
    config = Config()
    assert config.server.model_dump() == {
        "host": "127.0.0.1",
        "port": 8000,
        "admin_port": None,
        "workers": 1,
        "allow_anonymous": False,
        "sse_keepalive_s": 3,
        "drain_s": 30,
        "cors_origins": (),
    }
    assert config.storage.model_dump() == {
        "url": "sqlite+aiosqlite:///transom.db",
        "synchronous": "normal",
        "commit_wait_s": 2,
        "timeout_s": 2,
        "on_error": "continue",
        "retention_days": None,
    }
    assert config.limits.model_dump() == {
        "body_bytes": 33554432,
        "messages": 100000,
        "in_flight": 1000,
        "in_flight_bytes": 1073741824,
        "header_s": 10,
        "body_s": 30,
        "idle_s": 75,
        "connect_s": 10,
        "first_byte_s": 300,
        "idle_stream_s": 120,
        "total_s": 3600,
        "history_cache_mb": 64,
    }
    assert config.session.headers[0] == "X-Session-Id"
    assert len(config.session.headers) == 9
    assert config.session.body_fields == ("metadata.session_id", "litellm_session_id")
    assert config.session.missing == "match"
    assert config.session.user_headers == ("X-Transom-User", "X-OpenWebUI-User-Id")
    assert config.admin.key is None
    assert config.tenants["default"].model_dump() == {
        "keys": (),
        "policy": None,
        "models": None,
        "may_override": (),
        "relay": "stateless",
        "store": "full",
        "retention_days": None,
        "upstream_key": "config",
        "limits": {"in_flight": None, "summary_tokens_per_day": None},
    }


def test_hash_of_a_key() -> None:
    assert hash_key("key") == "sha256:2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"
    assert TenantEntry.model_validate({"keys": ["key"]}).keys == (hash_key("key"),)
    assert TenantEntry.model_validate({"keys": [hash_key("key")]}).keys == (hash_key("key"),)
    assert Admin.model_validate({"key": "key"}).key == hash_key("key")


def test_own_session_headers() -> None:
    assert Session.model_validate({"headers": ["X-Chat", "x_id"]}).headers == ("X-Chat", "x_id")


def test_sections_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Config().server.port = 1


@pytest.mark.parametrize("relay", ["stateless", "none", "all", ["/v1/files", "/v1/batches"]])
def test_relay(relay: object) -> None:
    entry = TenantEntry.model_validate({"relay": relay})
    assert entry.relay == (tuple(relay) if isinstance(relay, list) else relay)


def undescribed() -> Iterator[str]:
    models: tuple[type[BaseModel], ...] = (
        Server, Storage, Session, Limits, Admin, TenantLimits, TenantEntry, LiteLLMParams, ModelInfo,
    )  # fmt: skip
    for model in models:
        for name, field in model.model_fields.items():
            if not field.description and name != "limits":
                yield f"{model.__name__}.{name}"
    assert ModelEntry.model_fields["model_name"].description


def test_every_key_is_described() -> None:
    assert list(undescribed()) == []
