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
