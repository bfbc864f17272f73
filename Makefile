# What you need: GNU make and Python 3.11 or newer with its venv module. Everything else is installed into .venv.
#
#   make serve   the broker on http://127.0.0.1:10000, queues.yml, the log in storage/   (make serve ARGS="--port 11000")
#   make test    the whole test suite                                                      (make test ARGS="-k retry -x")
#   make help    the others

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { command -v $$name; break; }; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
ARGS ?=
WORKERS ?= 4

.PHONY: help screenshots serve cluster test test-pipeline lint format soak client-ts mutations bench bench-peers sbom wheel release lock docs site clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/' | expand -t 20

serve: $(VENV)/.installed  ## start the broker on queues.yml, with its log in storage/
	@exec $(BIN)/syncbrok serve $(ARGS)

cluster: $(VENV)/.installed-cluster  ## three servers of the engine and three brokers on this machine, to try a cluster; Ctrl-C ends all
	@exec $(BIN)/syncbrok cluster demo $(ARGS)

test: $(VENV)/.installed-dev  ## the whole test suite
	@exec $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

test-pipeline: $(VENV)/.installed-dev  ## the Spark jobs' own tests, minutes each, which make test leaves out
	@exec $(BIN)/python -m pytest -m slow tests/pipeline $(ARGS)

lint: $(VENV)/.installed-dev  ## style, formatting, types, and which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## let ruff format and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(VENV)/.installed-dev  ## each call of the disk fails; a cluster loses its nodes, its network, its engine; clients take all they can; an endpoint is down; twice the drain is published and one hangs; alerts fire; a receiver is killed a thousand times; the log rots; power fails; all is asked at once; then kill -9 under traffic, over and over, for SECONDS (default: half an hour)
	@$(BIN)/python -m tests.soak --what disk
	@$(BIN)/python -m tests.soak --what overload --seed 0
	@$(BIN)/python -m tests.soak --what outage --seconds 0
	@$(BIN)/python -m tests.soak --what overrun --seconds 0
	@$(BIN)/python -m tests.soak --what alerts --seconds 0
	@$(BIN)/python -m tests.soak --what inbox --seconds 0
	@$(BIN)/python -m tests.soak --what openapi --seconds 0
	@$(BIN)/python -m tests.soak --what rot --seconds 600
	@$(BIN)/python -m tests.soak --what power --seconds 300
	@$(BIN)/python -m tests.soak --what everything --seconds 900
	@$(BIN)/python -m tests.soak --what cluster --seconds 0
	@exec $(BIN)/python -m tests.soak --seconds $(or $(SECONDS),1800) $(ARGS)

client-ts:  ## build the TypeScript client (clients/typescript); needs Node and npm
	@cd clients/typescript && npm ci --no-audit --no-fund && npx tsc

mutations: $(VENV)/.installed-dev  ## break each promise on purpose and see which test notices
	@exec $(BIN)/python -m tests.mutations $(ARGS)

bench: $(VENV)/.installed-dev  ## measure every row, or those in ARGS, beside the ceilings of this machine (needs wrk and nginx)
	@exec $(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(VENV)/.installed-dev  ## the same jobs on other brokers: RabbitMQ, Redis, BullMQ, NATS, as far as installed
	@exec $(BIN)/python -m benchmarks.peers $(ARGS)

sbom: $(VENV)/.installed-dev  ## write sbom.json, what an installation runs on (CycloneDX); ARGS names extras
	@$(BIN)/python -m tools.sbom $(ARGS) > sbom.json

wheel: $(VENV)/.installed-dev  ## build the wheel into dist/ and have it checked
	@rm -rf build dist && $(BIN)/python -m build --wheel --no-isolation > /dev/null && rm -rf build
	@$(BIN)/python -m twine check --strict dist/*.whl

release: $(VENV)/.installed-dev  ## make a version of what is committed: its number, its section in CHANGELOG.md, a tag; VERSION=0.2.0
	@$(BIN)/python -m tools.release $(VERSION)

lock: $(VENV)/.installed-dev  ## write deploy/requirements.txt, what the image installs: the newest versions, with hashes
	@$(PIP) uv
	@echo setuptools | $(BIN)/uv pip compile pyproject.toml - --extra cluster --extra otel --python-version 3.13 \
	    --python-platform linux --generate-hashes --no-annotate --no-header --upgrade --quiet \
	    --output-file deploy/requirements.txt > /dev/null
	@sed -i '1i # All that the image installs, locked: make lock writes it.' deploy/requirements.txt

docs: $(VENV)/.installed-dev  ## write again what code writes: pictures, dashboard, promises
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.way
	$(BIN)/python -m tools.dashboard
	$(BIN)/python -m tools.promises

screenshots: $(VENV)/.installed-dev  ## the pictures of the page, in docs/; needs Chromium and chromedriver
	$(BIN)/python -m tests.support.http.screenshots docs

site: $(VENV)/.installed-dev  ## the documents as a site, in build/site; every link is checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict && echo "build/site/index.html"

clean:  ## remove .venv and caches; never the log
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Each stamp says: installed, and pyproject.toml has not changed since. pip is not run again until it has.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-cluster: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[cluster]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[cluster,dev,otel,spark]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-cluster

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'Syncbrok needs Python 3.11 or newer; none was found (PYTHON=/path/to/python names one).' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo '$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
