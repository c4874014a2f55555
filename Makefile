# Offramp. `make demo` shows it, `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PROTOS := $(sort $(wildcard proto/offramp/v1/*.proto))
STUBS  := clients/python
N      ?= 2000

.PHONY: help
help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.run: pyproject.toml clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Offramp needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which: make PYTHON=python3.12 ...")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e clients/python -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing what the tests need"
	@$(BIN)/pip install --quiet --disable-pip-version-check --group dev
	@touch $@

# The generator has a place of its own: it is pinned, so that the stubs also run with older protobuf runtimes.
$(VENV)/.proto: $(VENV)/.run
	@$(PYTHON) -m venv $(VENV)/generator
	@$(VENV)/generator/bin/pip install --quiet --disable-pip-version-check "grpcio-tools==1.76.0"
	@touch $@

generate = $(VENV)/generator/bin/python -m grpc_tools.protoc -Iproto --python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) $(PROTOS)

.PHONY: demo
demo: $(VENV)/.run ## the main job, for real, on the embedded broker
	@$(BIN)/offramp demo

.PHONY: test
test: $(VENV)/.dev check check-proto servers php java ## everything, in its short form
	$(BIN)/python -m pytest tests --ignore tests/simulation -n 2
	$(BIN)/python -m pytest tests/simulation

.PHONY: test-long
test-long: $(VENV)/.dev servers java ## the long forms of the same tests: more rounds, more histories
	OFFRAMP_TEST_LONG=1 $(BIN)/python -m pytest tests --timeout=7200

.PHONY: servers
servers: $(VENV)/.dev ## fetch the servers that the tests run on, once
	@$(BIN)/python -m tests.servers install

.PHONY: simulate
simulate: $(VENV)/.dev ## N random histories of the whole subscription, on all cores
	$(BIN)/python -m tests.simulation --histories $(N)

.PHONY: check
check: $(VENV)/.dev ## format, lint, types, protocol
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/buf lint proto
	@if git rev-parse -q --verify origin/main:proto >/dev/null 2>&1; then \
	  $(BIN)/buf breaking proto --against '.git#branch=origin/main,subdir=proto'; \
	elif git rev-parse -q --verify main:proto >/dev/null 2>&1; then \
	  $(BIN)/buf breaking proto --against '.git#branch=main,subdir=proto'; fi

.PHONY: check-proto
check-proto: $(VENV)/.proto ## the stubs are what the protocol says
	@rm -rf $(VENV)/stubs && mkdir -p $(VENV)/stubs
	@$(call generate,$(VENV)/stubs)
	@diff -r -x __init__.py -x __pycache__ $(VENV)/stubs/offramp/v1 $(STUBS)/offramp/v1 || { echo "the stubs are stale: run make proto"; exit 1; }

.PHONY: format
format: $(VENV)/.dev ## rewrite the code in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: proto
proto: $(VENV)/.proto ## generate the stubs again
	rm -rf $(STUBS)/offramp/v1 && mkdir -p $(STUBS)/offramp/v1
	$(call generate,$(STUBS))
	@printf '"""Generated from proto/offramp/v1 by `make proto`."""\n' > $(STUBS)/offramp/v1/__init__.py
	@clients/php/tools/generate clients/php/generated || [ $$? = 3 ]

JAVA_SOURCES := clients/java/build $(shell find clients/java examples/generated/java -name target -prune -o -type f \( -name '*.java' -o -name pom.xml \) -print)

.PHONY: java
java: clients/java/target/.built ## build the Java client, if there is a JDK and Maven

clients/java/target/.built: $(JAVA_SOURCES) $(PROTOS)
	@if command -v javac >/dev/null && command -v mvn >/dev/null; then \
	  echo "building the Java client" && clients/java/build && mkdir -p $(@D) && touch $@; \
	else \
	  echo "javac and mvn are not there: the Java client is not built. On Debian: apt install openjdk-17-jdk-headless maven"; \
	  [ "$$CI" != true ]; \
	fi

.PHONY: php
php: ## install PHP and what its client is tested with, if it is missing
	@clients/php/tools/install

.PHONY: proto-php
proto-php: ## generate the PHP classes of the protocol again
	@clients/php/tools/generate clients/php/generated

.PHONY: bench
bench: $(VENV)/.run ## measure
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.clients

.PHONY: clean
clean: ## remove what was made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis build dist *.egg-info clients/python/*.egg-info clients/java/target clients/java/*/target examples/generated/java/target
