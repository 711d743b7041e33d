#!/usr/bin/env bash
# Resolves pyproject.toml into the lock files: names, versions, markers and hashes; no addresses.
# usage: lock.sh UV
set -euo pipefail
cd "$(dirname "$0")/.."
compile=("$1" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes
  --no-header --no-annotate)
"${compile[@]}" pyproject.toml --output-file requirements.lock
"${compile[@]}" --extra dev --constraints requirements.lock pyproject.toml --output-file requirements-dev.lock
# What builds the project itself, at the versions the developers have.
"${compile[@]}" --constraints requirements-dev.lock --output-file requirements-build.lock - < <(
  python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'
)
# What the pages of docs/clients are run with.
clients=tests/docs/clients
"${compile[@]}" "$clients/requirements.in" --output-file "$clients/requirements.lock"
rm -f "$clients/package-lock.json"
npm install --prefix "$clients" --package-lock-only --omit-lockfile-registry-resolved=true --silent --no-audit --no-fund
python3 - "$clients/package-lock.json" <<'PY'
import json, pathlib, sys

file = pathlib.Path(sys.argv[1])
lock = json.loads(file.read_text())
for package in lock["packages"].values():
    package.pop("funding", None)  # an address
file.write_text(json.dumps(lock, indent=2) + "\n")
PY
