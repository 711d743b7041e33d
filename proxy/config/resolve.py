"""What a configuration takes from outside its files: environment overrides and the secrets it points to.

Of what the keys mean it knows only where secrets stand.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from transom.proxy.config.places import ConfigError, Document, Fault, KeyPath, Place, parse_scalar

OVERRIDE = "TRANSOM__"
FROM_ENVIRONMENT = "os.environ/"
FROM_FILE = "file:"
HASHED = "sha256:"


def apply_overrides(document: Document, environment: Mapping[str, str]) -> None:
    """Let `TRANSOM__SERVER__HOST=…` set `server.host`, and every other scalar likewise.

    Names are matched without regard to case where the key exists, else taken in lower case; a number picks from a list.
    Raises ConfigError where a name leads nowhere.
    """
    for name in sorted(environment):
        if name.startswith(OVERRIDE):
            _override(document, name, environment[name])


def _override(document: Document, name: str, value: str) -> None:
    place = Place(f"environment variable {name}")
    here: Any = document.tree
    path: KeyPath = ()
    *above, last = name[len(OVERRIDE) :].split("__")
    for part in above:
        step = _step(here, part, place)
        path = (*path, step)
        below = here.get(step) if isinstance(here, dict) else here[step]
        if below is None:
            below = here[step] = {}
            document.places[path] = place
        here = below
    step = _step(here, last, place)
    here[step] = parse_scalar(value)
    document.places[*path, step] = place


def _step(here: object, part: str, place: Place) -> str | int:
    if isinstance(here, dict) and part:
        return next((key for key in here if key.lower() == part.lower()), part.lower())
    if isinstance(here, list) and part.isdecimal() and int(part) < len(here):
        return int(part)
    raise ConfigError(Fault(place, "", "leads to no key of the configuration"))


def resolve_secrets(document: Document, environment: Mapping[str, str], folder: Path) -> list[Fault]:
    """Put the values of `os.environ/NAME` and `file:PATH` in their places and return the faults met.

    Only where a secret may stand: storage.url, admin.key, tenants' keys and litellm_params. A relative PATH starts at
    `folder`. Of a file, surrounding white space is dropped.
    """
    faults: list[Fault] = []
    for path, text, put in _secret_places(document.tree):
        value, fault = _look_up(text, environment, folder)
        if fault is not None:
            faults.append(document.fault(path, fault))
        else:
            put(value)
    return faults


def keys_in_plain(document: Document) -> Iterator[Fault]:
    """Yield the keys of tenants and of /admin that a file holds as they are: whoever reads the file can use them.

    Ask before the secrets are resolved.
    """
    for path, text, _ in _secret_places(document.tree):
        elsewhere = text.startswith((HASHED, FROM_ENVIRONMENT, FROM_FILE)) or document.place(path).line is None
        if path[0] in ("tenants", "admin") and not elsewhere:
            yield document.fault(
                path,
                "is written in plain; write os.environ/NAME, file:PATH, or its hash: sha256: and what "
                "`printf %s KEY | sha256sum` prints",
            )


def _look_up(text: str, environment: Mapping[str, str], folder: Path) -> tuple[str, str | None]:
    if text.startswith(FROM_ENVIRONMENT):
        name = text[len(FROM_ENVIRONMENT) :]
        value = environment.get(name, "").strip()
        return value, None if value else f"the environment variable {name} is {_lack(name in environment)}"
    if not text.startswith(FROM_FILE):
        return text, None
    path = text[len(FROM_FILE) :]
    try:
        value = (folder / path).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        return "", f"the file {path} cannot be read: {reason}"
    return value, None if value else f"the file {path} is empty"


def _lack(there: bool) -> str:
    return "empty" if there else "not set"


def _secret_places(tree: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str, Callable[[str], None]]]:
    for section, key in (("storage", "url"), ("admin", "key")):
        holder = tree.get(section)
        if isinstance(holder, dict):
            yield from _texts(holder, key, (section, key))
    for name, tenant in _items(tree.get("tenants")):
        if isinstance(tenant, dict):
            yield from _texts(tenant, "keys", ("tenants", name, "keys"))
    for index, entry in _items(tree.get("model_list")):
        if isinstance(entry, dict):
            yield from _texts(entry, "litellm_params", ("model_list", index, "litellm_params"))


def _texts(holder: Any, key: str | int, path: KeyPath) -> Iterator[tuple[KeyPath, str, Callable[[str], None]]]:
    value = holder.get(key) if isinstance(holder, dict) else holder[key]
    if isinstance(value, str):
        yield path, value, lambda text: holder.__setitem__(key, text)
    for step, _ in _items(value):
        yield from _texts(value, step, (*path, step))


def _items(value: object) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []
