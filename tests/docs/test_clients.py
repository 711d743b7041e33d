"""Each page of docs/clients does what it says: its own code, the real client, one real proxy, a session of its own.

The clients are not installed for `make test`: `make pages` installs them, and names their folder in
TRANSOM_TEST_CLIENTS.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import INSTALL, Page
from tests.docs.running import ROOT, Transom, check_database, shell, transom

CLIENTS = "TRANSOM_TEST_CLIENTS"
FILES = Path(__file__).with_name("clients")
INDEX = (ROOT / "docs" / "clients" / "README.md").read_text("utf-8")
PAGES = [Page(path) for path in sorted((ROOT / "docs" / "clients").glob("*.md")) if path.name != "README.md"]
PROGRAMS = {"python": ("page.py", "python page.py"), "js": ("page.mjs", "node page.mjs")}
WITHOUT_HEADER = {"llm"}


def name(page: Page) -> str:
    return page.path.stem


def place_of_clients(page: Page) -> Path | None:
    """Return the folder of the client libraries, None for a page that needs none; skip where they are not installed."""
    if not page.packages:
        return None
    if CLIENTS not in os.environ:
        pytest.skip(f"{CLIENTS} is not set: `make pages` installs the client libraries and runs the pages")
    if page.is_node and shutil.which("npm") is None:
        assert os.environ.get("CI") != "true", "npm is missing: in CI every page is run"
        pytest.skip("npm is missing")
    return Path(os.environ[CLIENTS])


def guarded(work: Path, clients: Path | None = None) -> dict[str, str]:
    """Return the variables by which clients are found, keep to this machine, and note what they call beyond it."""
    path = os.environ["PATH"]
    return {
        "PATH": path if clients is None else f"{clients / 'venv' / 'bin'}:{path}",
        "HOME": str(work),
        "LLM_USER_PATH": str(work),
        "LOOPBACK_NOTES": str(work / "notes"),
        "PYTHONPATH": str(FILES / "guard"),
        "NODE_OPTIONS": f"--import={FILES / 'guard' / 'loopback.mjs'}",
    }


def run(page: Page, address: str, work: Path, clients: Path | None) -> str:
    """Do what a page says, installing aside, and return what was printed."""
    lines = INSTALL.sub("", "".join(page.blocks("sh", address)))
    for language, (file, command) in PROGRAMS.items():
        if blocks := page.blocks(language, address):
            (work / file).write_text("".join(blocks), "utf-8")
            lines += command
    if clients is not None and page.is_node:
        (work / "node_modules").symlink_to(clients / "node_modules")
    done = shell(lines, work, **guarded(work, clients))
    assert done.returncode == 0, done.stderr
    assert not (work / "notes").exists(), (work / "notes").read_text()
    return done.stdout.replace("\r", "")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transom]:
    """Serve all pages, as a reader's one proxy would: what one has stored, the next one meets."""
    served = tmp_path_factory.mktemp("served")
    shutil.copy(ROOT / "config.yaml", served)
    with transom(served) as serving:
        yield serving
    check_database(served)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_prints_what_it_says_within_one_session(page: Page, proxy: Transom, tmp_path: Path) -> None:
    clients = place_of_clients(page)
    before = {session["id"] for session in proxy.admin("sessions")["sessions"]}
    printed = run(page, proxy.address, tmp_path, clients)
    [session] = [session for session in proxy.admin("sessions")["sessions"] if session["id"] not in before]
    held = proxy.admin(f"sessions/{session['id']}")
    named = proxy.admin(f"sessions?key={name(page)}-1")["sessions"]
    assert page.prints(printed), printed
    assert not re.search(r"\b(None|undefined)\b", printed)
    assert named == ([] if name(page) in WITHOUT_HEADER else [session])
    assert session["source"] == ("new" if name(page) in WITHOUT_HEADER else "header")
    [thread] = held["threads"]
    assert thread["messages"] == session["messages"] >= 4
    assert sum(message["role"] == "user" for message in held["messages"]) >= 2
    assert len(held["requests"]) >= 2
    assert all(request["status"] == 200 and request["complete"] for request in held["requests"])


@pytest.mark.parametrize(
    "script",
    [
        "python -c 'import socket; socket.create_connection((\"192.0.2.1\", 9))'",
        "node -e 'fetch(\"http://192.0.2.1\")'",
    ],
    ids=["python", "node"],
)
def test_the_guard_notes_what_leaves_the_machine(script: str, tmp_path: Path) -> None:
    if shutil.which(script.partition(" ")[0]) is None:
        pytest.skip("there is no such program")
    assert shell(script, tmp_path, **guarded(tmp_path)).returncode != 0
    assert "192.0.2.1" in (tmp_path / "notes").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_tells_to_install_is_locked(page: Page) -> None:
    if page.is_node:
        locked = json.loads((FILES / "package.json").read_text())["dependencies"].keys()
    else:
        locked = re.findall(r"^([\w-]+)==", (FILES / "requirements.lock").read_text(), re.MULTILINE)
    assert set(page.packages) <= set(locked)


def test_every_page_stands_in_the_table() -> None:
    assert re.findall(r"^\| \[[^\]]+\]\((\S+)\.md\)", INDEX, re.MULTILINE) == sorted(map(name, PAGES))
