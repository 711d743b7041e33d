# Everything a person or a pipeline does here. `make help` lists it. Needs: Python 3.11 with pip and venv, make.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
WORKERS ?= 2
# The least coverage that passes, in per cent, branches included: the pure parts, and everything.
COVERAGE_STRICT ?= 99
COVERAGE ?= 90

BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
INSTALL := $(PIP) install --no-deps --no-compile --require-hashes
PYTEST := $(BIN)/python $(if $(CI),-m coverage run) -m pytest -q -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo install test pages lint format types contracts sizes hygiene coverage wheel check bench microbench lock
.PHONY: clean

help:  ## Show this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: .venv/runtime  ## Install what is needed and watch a conversation being windowed, offline
	@$(BIN)/transom demo

install: .venv/dev  ## Install everything for development into .venv

test: .venv/dev  ## Run all tests
	@env -u PYTHONDONTWRITEBYTECODE $(PYTEST)  # the many programs that tests start need not be compiled each time

pages: .venv/dev .venv/clients/installed  ## Run the code of docs/clients with the clients themselves
	@env -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/.venv/clients/venv/bin:$$PATH" \
	  TRANSOM_TEST_CLIENTS="$(CURDIR)/.venv/clients" $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/docs

lint: .venv/dev  ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: .venv/dev  ## Format, and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: .venv/dev  ## Check types
	@$(BIN)/mypy

contracts: .venv/dev  ## Check which package may import which
	@$(BIN)/lint-imports --no-logo

sizes: .venv/dev  ## Check the lengths of files and functions
	@$(BIN)/python scripts/sizes.py

hygiene: .venv/dev  ## Check that no registry, machine path or stray import stands in the tree
	@bash scripts/hygiene.sh

coverage: .venv/dev  ## Report the coverage of the last `CI=true make test`
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --include='policies/*,storage/*' --fail-under=$(COVERAGE_STRICT)
	@$(BIN)/coverage report --format=total --fail-under=$(COVERAGE) | sed 's/$$/ % in all/'

wheel: .venv/dev  ## Build the wheel into dist/
	@rm -rf dist && $(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null && ls dist

check: lint types contracts sizes hygiene test  ## Everything a change must pass

bench: .venv/dev  ## Measure the proxy beside a relay that does nothing; ARGS="--help" for more
	@$(BIN)/python -m bench $(ARGS)

microbench: .venv/dev  ## Measure the building blocks
	@$(BIN)/python -m pytest -q bench/micro --benchmark-group-by=func --benchmark-columns=min,median,iqr,rounds $(ARGS)

lock: .venv/uv  ## Resolve all dependencies anew into the lock files
	@bash scripts/lock.sh .venv/uv/bin/uv

clean:  ## Remove what was built or installed
	@rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*

.venv/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@touch $@

.venv/runtime: .venv/python requirements.lock requirements-build.lock pyproject.toml
	@echo "installing into .venv, which takes one to two minutes …"
	@$(INSTALL) -r requirements.lock
	@$(INSTALL) -r requirements-build.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: .venv/runtime requirements-dev.lock
	@$(INSTALL) -r requirements-dev.lock
	@touch $@

.venv/clients/installed: tests/docs/clients/requirements.lock tests/docs/clients/package-lock.json | .venv/uv
	@echo "installing the client libraries into .venv/clients …"
	@rm -rf .venv/clients && .venv/uv/bin/uv venv --quiet --python $(BIN)/python .venv/clients/venv
	@UV_SYSTEM_CERTS=true .venv/uv/bin/uv pip install --quiet --no-deps --require-hashes \
	  --python .venv/clients/venv/bin/python -r $<
	@cp tests/docs/clients/package*.json .venv/clients
	@if command -v npm >/dev/null; then \
	  npm ci --prefix .venv/clients --silent --ignore-scripts --no-audit --no-fund; fi
	@touch $@

.venv/uv: .venv/python
	@$(PYTHON) -m venv $@ && $@/bin/python -m pip -qq --disable-pip-version-check install uv
