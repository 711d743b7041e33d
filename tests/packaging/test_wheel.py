import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("middleware", "policies", "proxy", "storage")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel, and nothing else, into a clean environment; return the environment's folder."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(folder / "bin/python")]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    return folder


def site_packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3*/site-packages")
    return found


def test_only_transom_arrives(installed: Path) -> None:
    names = {path.name for path in site_packages(installed).iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"transom"}


def test_every_source_file_arrives(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {
        f"transom/{path.relative_to(ROOT)}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    top = {f"transom/{path.name}" for path in (ROOT / ".dev/transom").iterdir() if path.is_file()}
    assert {"transom/__init__.py", "transom/py.typed"} <= top
    assert sources | top == packed
    assert any(name.startswith("transom/storage/migrations/") for name in packed)


def test_the_licence_and_the_command_are_declared(installed: Path) -> None:
    (metadata,) = site_packages(installed).glob("transom-*.dist-info")
    assert (metadata / "licenses/LICENSE").read_text("utf-8").strip().startswith("Apache License")
    assert "transom = transom.proxy.cli:main" in (metadata / "entry_points.txt").read_text("utf-8")


def test_the_command_runs_from_the_wheel(installed: Path) -> None:
    dependencies = next(path for path in sys.path if path.endswith("site-packages"))
    # The dependencies of this environment, but not the editable install that a .pth file adds to it.
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{site_packages(installed)}:{dependencies}"}
    program = "import transom; print(transom.__file__); from transom.proxy.cli import main; main()"
    run = subprocess.run(
        [installed / "bin/python", "-c", program, "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(str(installed))
    assert "serve" in run.stdout
