# Headway: the two commands of a newcomer are `make demo` and `make test`; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONDONTWRITEBYTECODE ?=

RUN_DEPS := $(VENV)/.run-installed
TEST_DEPS := $(VENV)/.test-installed

.PHONY: help demo demo-kafka test test-docs test-keda test-ray test-model test-faults check chaos chaos-splitting coverage mutation docs lock audit clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+[a-z%-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.python: locks/bootstrap.txt
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON): install Python 3.11 or newer, or say make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) -V): Headway needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r locks/bootstrap.txt
	@touch $@

$(RUN_DEPS): $(VENV)/.python locks/run.txt pyproject.toml
	@echo "installing Headway and its locked dependencies into $(VENV) ..."
	@$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r locks/run.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(TEST_DEPS): $(RUN_DEPS) locks/test.txt
	@echo "installing what the tests need into $(VENV) ..."
	@$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r locks/test.txt
	@touch $@

demo: $(RUN_DEPS)  ## the whole job on an embedded store and a real trace; ONCE=1 ends by itself, PORT=N picks the port
	@$(BIN)/headway demo $(if $(ONCE),--once) $(if $(PORT),--port $(PORT))

demo-kafka: $(RUN_DEPS)  ## planned workers on real Kafka, scaled ahead of a replayed spike; ends by itself
	@$(BIN)/python -m benchmarks.demo_kafka $(if $(KEEP),--keep)

test: $(TEST_DEPS)  ## everything that CI runs, with real peers; SUITE="unit stores" runs some
	@$(BIN)/python -m tests.suites $(SUITE)

check: $(TEST_DEPS)  ## fast: lint, types, import contracts, unit tests
	@$(BIN)/python -m tests.suites checks unit

bench-%: $(TEST_DEPS)  ## run one benchmark beside its rival: forecast, decisions, storage, ...
	@$(BIN)/python -m benchmarks.$*

test-keda: $(TEST_DEPS)  ## our scaler under the real KEDA operator; builds it the first time (some ten minutes)
	@$(BIN)/python -m pytest tests/keda -m keda -q -s

test-ray: $(TEST_DEPS)  ## training on a real local Ray cluster (a minute or two)
	@$(BIN)/python -m pytest tests/integration/forecasting/test_backends.py -m slow -q

test-model: $(TEST_DEPS)  ## every interleaving of the larger worlds against the splitting protocol's invariants (some ten minutes)
	@$(BIN)/python -m pytest tests/unit/balancer/routing/test_model.py -m slow -q -s

test-docs: $(TEST_DEPS)  ## every command of README and docs that needs only data/, as it stands (some minutes)
	@$(BIN)/python -m pytest tests/acceptance/test_documented_commands.py -q

test-faults: $(TEST_DEPS)  ## serve under every dead, slow or wrong peer, and several serves over one store (five minutes)
	@$(BIN)/python -m pytest tests/acceptance/test_several.py tests/integration/acting/test_faults_live.py -m slow -q

chaos: $(TEST_DEPS)  ## long random fault schedules on real Kafka; SEED=N replays one
	@$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED))

chaos-splitting: $(TEST_DEPS)  ## hundreds of random split, merge, crash and stale-producer schedules; SEED=N replays one, PLAIN=1 without transactions
	@$(BIN)/python -m tests.splitting $(if $(SEED),--seed $(SEED)) $(if $(PLAIN),--plain)

coverage: $(TEST_DEPS)  ## line coverage of forecaster and balancer
	@$(BIN)/python -m tests.suites --coverage unit stores kafka acting

mutation: $(TEST_DEPS)  ## mutation score of the pure decision modules (mutmut; about half an hour)
	@$(BIN)/mutmut run --max-children 2 && $(BIN)/python -m benchmarks.mutation

docs: $(TEST_DEPS)  ## build the documentation into docs/_build, links checked strictly
	@$(BIN)/python -m sphinx -W -n -q -b html docs docs/_build
	@echo "docs/_build/index.html"

lock: $(VENV)/.python  ## renew the lock files (versions and hashes, no addresses)
	@$(BIN)/python locks/renew.py $(BIN)/uv

audit: $(TEST_DEPS)  ## known vulnerabilities in the locked dependencies; AUDIT=required: also fail without network
	@$(BIN)/python locks/audit.py $(BIN)/pip-audit locks/run.txt

clean:  ## remove what was built; recorded data and models stay
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
