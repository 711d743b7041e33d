"""Reading configurations: good files, bad files with their exact messages, includes, overrides, secrets."""

from pathlib import Path

import pytest
import yaml

from transom.proxy.config.load import ConfigError, for_upstream, from_mapping, from_text, included_files, load
from transom.proxy.config.schema import Config, hash_key


def refused(text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_text(text, "config.yaml", environment=environment)
    return str(caught.value).splitlines()


def model(name: str = "a", **params: object) -> dict[str, object]:
    return {"model_name": name, "litellm_params": {"model": f"openai/{name}", **params}}


def refusals() -> list[object]:
    blocks = (Path(__file__).parent / "refusals.txt").read_text("utf-8").split("====\n")[1:]
    pairs = [block.rstrip("\n").split("\n=> ") for block in blocks]
    return [pytest.param(text, said, id=f"{number}-{said.split(': ')[1]}") for number, (text, said) in enumerate(pairs)]


@pytest.mark.parametrize(("text", "said"), refusals())
def test_a_bad_file_is_refused_with_place_key_and_advice(text: str, said: str) -> None:
    assert refused(text, BLANK=" ") == [said]


def test_all_faults_are_told_at_once_in_the_order_of_lines() -> None:
    text = "tenants:\n  a: {keys: [os.environ/NOPE], stor: full}\nserver:\n  prt: 1\npolicies:\n  p: {trim_to: 2}\n"
    assert [line.split(" ")[0] for line in refused(text)] == [
        "config.yaml:2:", "config.yaml:2:", "config.yaml:4:", "config.yaml:6:",
    ]  # fmt: skip


def test_no_message_quotes_a_text_that_might_be_a_secret() -> None:
    secret = "sk-very-secret"
    text = f"""
server: {{port: {secret}, host: [{secret}]}}
storage: {{url: {secret}, on_error: {secret}}}
admin: {{key: sha256:{secret}}}
model_list:
  - {{model_name: a, litellm_params: {{model: 5, api_key: [{secret}], api_base: {secret}}}}}
tenants: {{a: {{keys: [{{k: {secret}}}], relay: {{{secret}: 1}}}}}}
policies: {{a: {{strategy: {secret}, max_tokens: {secret}, enforce: {secret}, preset: {secret}}}}}
"""
    lines = refused(text)
    assert len(lines) == 14
    assert not [line for line in lines if secret in line]


def test_nothing_written_is_a_working_configuration() -> None:
    config = from_text("", "config.yaml", environment={})
    assert config == Config()
    assert config.policies["default"].preset == "chat"
    assert list(config.tenants) == ["default"]


def test_a_section_whose_keys_are_all_commented_out_is_absent() -> None:
    assert from_text("server:\n  # port: 1\nmodel_list:\ntenants:\n", "config.yaml", environment={}) == Config()


def test_bare_on_and_off() -> None:
    config = from_text("policies: {a: {enforce: off}, b: {enforce: on}, default: {tool_limit_note: no}}", "f")
    assert [config.policies[name].enforce for name in ("a", "b")] == ["off", "on"]
    assert config.policies["default"].tool_limit_note is False


def test_a_mapping_read_by_another_yaml_parser() -> None:
    mapping = yaml.safe_load("policies: {a: {enforce: off}, default: {enforce: on, compact_at: null}}")
    config = from_mapping(mapping, environment={})
    assert (config.policies["a"].enforce, config.policies["default"].enforce) == ("off", "on")


def test_a_mapping_has_no_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"server": {"prt": 1}}, environment={})
    assert str(caught.value) == "configuration: server.prt: unknown key; did you mean port?"


def test_overrides(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"model_list": [model()], "policies": {"My-Policy": {}}}))
    environment = {
        "TRANSOM__SERVER__PORT": "9000",
        "TRANSOM__SERVER__ALLOW_ANONYMOUS": "yes",
        "TRANSOM__SERVER__SSE_KEEPALIVE_S": "null",
        "TRANSOM__POLICIES__MY-POLICY__MAX_TOKENS": "auto",
        "TRANSOM__MODEL_LIST__0__LITELLM_PARAMS__API_KEY": "os.environ/KEY",
        "KEY": "sk-x",
        "TRANSOM_ADMIN_KEY": "left alone",
    }
    config = load(tmp_path / "c.yaml", environment=environment)
    assert (config.server.port, config.server.allow_anonymous, config.server.sse_keepalive_s) == (9000, True, None)
    assert config.policies["My-Policy"].max_tokens == "auto"
    assert config.model_list[0].litellm_params.api_key == "sk-x"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TRANSOM__SERVER__HOTS", "x", ": server.hots: unknown key; did you mean host?"),
        ("TRANSOM__SERVER__PORT", "x", ": server.port: must be a whole number"),
        ("TRANSOM__SERVER__PORT__X", "1", ": leads to no key of the configuration"),
        (
            "TRANSOM__MODEL_LIST__0__MODEL_NAME",
            "x",
            "TRANSOM__MODEL_LIST__0__MODEL_NAME: model_list: must be a list, as in [a, b]",
        ),
        ("TRANSOM__", "x", ": leads to no key of the configuration"),
    ],
)
def test_an_override_that_is_wrong_is_named(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_text("server: {port: 1}", "config.yaml", environment={name: value})
    line = str(caught.value)
    assert line.endswith(said)
    assert name in line or "config.yaml" in line


def test_secrets_from_files_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("  sk-file\n")
    (tmp_path / "config.yaml").write_text(
        "admin: {key: os.environ/ADMIN}\nstorage: {url: os.environ/DB}\n"
        "model_list:\n  - model_name: a\n    litellm_params:\n"
        "      {model: openai/a, api_key: file:secret, extra_headers: {x-team: os.environ/TEAM}}\n"
        "tenants: {t: {keys: [os.environ/T]}}\n"
    )
    environment = {"ADMIN": "admin", "DB": "postgresql+psycopg://db/x", "TEAM": "blue", "T": "key"}
    config = load(tmp_path / "config.yaml", environment=environment)
    params = config.model_list[0].litellm_params
    assert (params.api_key, params.extra_headers) == ("sk-file", {"x-team": "blue"})
    assert config.admin.key == hash_key("admin")
    assert config.tenants["t"].keys == (hash_key("key"),)
    assert config.storage.url == "postgresql+psycopg://db/x"


def test_an_empty_secret_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, said in (("secret", "the file secret is empty"), ("bytes", "the file bytes cannot be read: no text")):
        (tmp_path / "config.yaml").write_text(f"admin: {{key: file:{name}}}")
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / "config.yaml", environment={})
        assert str(caught.value).endswith(f"config.yaml:1: admin.key: {said}")


def test_a_secret_is_looked_up_only_where_one_may_stand() -> None:
    config = from_text("policies: {default: {summary_model: os.environ/NOPE}}", "f", environment={})
    assert config.policies["default"].summary_model == "os.environ/NOPE"


def test_no_secret_shows_in_the_text_of_a_configuration() -> None:
    mapping = {
        "storage": {"url": "postgresql+psycopg://u:hidden@h/d"},
        "admin": {"key": "hidden-admin"},
        "model_list": [
            model(api_key="sk-hidden", extra_headers={"x-key": "hidden"}),
            {"model_name": "b", "litellm_params": {"model": "bedrock/b", "aws_secret_access_key": "hidden"}},
        ],
        "tenants": {"t": {"keys": ["hidden-key"]}},
    }
    config = from_mapping(mapping, environment={})
    assert "hidden" not in repr(config)
    assert "hidden" not in str(config)
    assert "hidden-key" not in config.model_dump_json()


def test_includes(tmp_path: Path) -> None:
    (tmp_path / "tenants.d").mkdir()
    (tmp_path / "config.yaml").write_text("include: [tenants.d/*.yaml, models.yaml]\ntenants: {a: {keys: [ka]}}\n")
    (tmp_path / "models.yaml").write_text("model_list:\n  - {model_name: m, litellm_params: {model: openai/m}}\n")
    (tmp_path / "tenants.d" / "b.yaml").write_text("tenants: {b: {keys: [kb]}}\npolicies: {default: {preset: agent}}\n")
    (tmp_path / "tenants.d" / "c.yaml").write_text("tenants:\n")
    (tmp_path / "tenants.d" / "ignored.txt").write_text("nonsense: [")
    config = load(tmp_path / "config.yaml", environment={})
    assert list(config.tenants) == ["a", "b"]
    assert [entry.model_name for entry in config.model_list] == ["m"]
    assert config.policies["default"].preset == "agent"


@pytest.mark.parametrize(
    ("included", "said"),
    [
        ("tenants:\n  a: {keys: [k2]}", "{d}/t.yaml:2: tenants.a: is written twice, first at {d}/config.yaml:2"),
        ("server: {port: 1}", "{d}/t.yaml:1: server: an included file may hold model_list, policies, tenants only"),
        ("tenants: 5", "{d}/t.yaml:1: tenants: must be a mapping of names"),
        ("model_list: 5", "{d}/t.yaml:1: model_list: must be a list of models"),
        ("\ntenants: {b: {kees: [x]}}", "{d}/t.yaml:2: tenants.b.kees: unknown key; did you mean keys?"),
        (
            "\nmodel_list: [{model_name: m, litellm_params: {modle: x, model: openai/x}}]",
            "{d}/t.yaml:2: model_list[1].litellm_params.modle: unknown key; did you mean model?",
        ),
        ("a: b: c", "{d}/t.yaml:1: is not valid YAML: "),
    ],
)
def test_a_fault_in_an_included_file_names_that_file(tmp_path: Path, included: str, said: str) -> None:
    (tmp_path / "config.yaml").write_text(
        "include: [t.yaml]\ntenants: {a: {keys: [k]}}\n"
        "model_list: [{model_name: first, litellm_params: {model: openai/first}}]\n"
    )
    (tmp_path / "t.yaml").write_text(included)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml", environment={})
    assert str(caught.value).startswith(said.format(d=tmp_path))


def test_an_included_file_named_in_full_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("include: [nowhere.yaml, none.d/*.yaml]\n")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: there is no such file"):
        load(tmp_path / "config.yaml", environment={})


def test_sections_of_the_wrong_kind_meet_an_include(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("include: [t.yaml]\ntenants: 5\nmodel_list: 5\n")
    (tmp_path / "t.yaml").write_text("tenants: {a: {}}\nmodel_list: [{model_name: m}]\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml", environment={})
    assert str(caught.value).splitlines() == [
        f"{tmp_path}/config.yaml:2: tenants: must be a mapping of names",
        f"{tmp_path}/config.yaml:3: model_list: must be a list, as in [a, b]",
    ]


def test_included_files_come_once_and_never_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for name in ("config.yaml", "b.yaml", "a.yaml"):
        (tmp_path / name).touch()
    patterns = ["b.yaml", "*.yaml", str(tmp_path / "*.yaml"), 5, ""]
    assert included_files(path, patterns) == [tmp_path / "b.yaml", tmp_path / "a.yaml"]
    assert included_files(path, "b.yaml") == []


def test_for_upstream() -> None:
    config = for_upstream("http://localhost:8080/v1/", environment={})
    entry = config.model_list[0]
    assert (entry.model_name, entry.litellm_params.address) == ("*", "http://localhost:8080/v1")
    assert config.tenants["default"].upstream_key == "client"
    assert config.policies["default"].preset == "chat"
    assert for_upstream("http://x/v1", "agent", environment={}).policies["default"].preset == "agent"


@pytest.mark.parametrize(
    ("url", "preset", "said"),
    [
        ("localhost:8080", "chat", "--upstream: must be an address that begins with http:// or https://"),
        ("http://x", "chatt", "--preset: there are voice, chat, agent, recall; did you mean chat?"),
    ],
)
def test_for_upstream_refuses(url: str, preset: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        for_upstream(url, preset, environment={})
    assert str(caught.value) == said
