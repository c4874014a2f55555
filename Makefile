# Offramp. `make demo` shows it, `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PROTOS := $(sort $(wildcard proto/offramp/v1/*.proto))
STUBS  := clients/python
# Tests that start a dozen processes each: beside others they would keep a small machine from all else.
CROWDS := tests/e2e/kafka/test_faults.py tests/e2e/nats/test_faults.py tests/e2e/pulsar/test_faults.py \
  tests/e2e/redis/test_faults.py tests/chaos/test_rounds.py
# What needs nothing but Python.
FAST   := tests/unit tests/properties tests/compatibility tests/brokers/local \
  tests/brokers/queue tests/brokers/test_memory.py tests/brokers/test_registry.py tests/brokers/test_histories.py \
  tests/promises/test_local.py tests/promises/test_memory.py tests/promises/test_queue.py tests/promises/test_exemptions.py
N      ?= 2000

.PHONY: help
help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

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

.PHONY: demo-spark
demo-spark: $(VENV)/.dev ## the example pipeline on Spark: clicks -> sessions per minute -> files and a topic
	@$(BIN)/python examples/spark/demo.py

.PHONY: test
test: $(VENV)/.dev check check-proto servers php java chromium faketime image-archive kustomize ## everything, in its short form
	$(BIN)/python -m pytest tests $(addprefix --ignore ,$(CROWDS)) -n 4 --dist loadgroup # they wait more than they work
	$(BIN)/python -m pytest $(CROWDS) -n 2 --dist loadfile

.PHONY: test-fast
test-fast: $(VENV)/.dev ## what needs no server, in under three minutes: units, properties, memory and local, 200 histories, docs
	$(BIN)/python -m pytest $(FAST) -n 2
	$(BIN)/python -m tests.simulation --histories 200

.PHONY: test-long
test-long: $(VENV)/.dev servers php java chromium faketime image-archive kustomize ## the long forms of the same tests: more rounds, more histories
	OFFRAMP_TEST_LONG=1 $(BIN)/python -m pytest tests --timeout=7200

.PHONY: servers
servers: $(VENV)/.dev ## fetch the servers that the tests run on, once
	@$(BIN)/python -m tests.servers install

.PHONY: simulate
simulate: $(VENV)/.dev ## N random histories of the whole subscription, on all cores
	$(BIN)/python -m tests.simulation --histories $(N)

.PHONY: chaos
chaos: $(VENV)/.dev faketime ## faults by a seed, for ten minutes: ROUNDS= SEED= BROKER= SECONDS= ROUND=
	@$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(BROKER),--broker $(BROKER)) \
	  $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ROUND),--round $(ROUND))

.PHONY: fuzz
fuzz: $(VENV)/.dev ## what no client should send, for two minutes, and files that no one should find: SECONDS= SEED=
	@$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS))
	$(BIN)/python -m pytest --timeout=1200 tests/fuzz/test_database.py tests/unit/config/test_fuzz.py \
	  tests/unit/brokers/kafka/test_commit_metadata.py

.PHONY: check
check: $(VENV)/.dev ## format, lint, types, imports, protocol
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
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
format: $(VENV)/.dev ## format the code (ruff)
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

.PHONY: chromium
chromium: ## install the browser that the status page is tested in, if it is missing
	@tests/page/install

.PHONY: faketime
faketime: ## install the library by which clocks jump in chaos rounds, if it is missing
	@tests/chaos/install

.PHONY: screenshots
screenshots: $(VENV)/.dev chromium ## pictures of the status page for the documentation, of a sidecar under real load
	$(BIN)/python -m tests.page.screenshots docs/images

.PHONY: proto-php
proto-php: ## generate the PHP classes of the protocol again
	@clients/php/tools/generate clients/php/generated

.PHONY: image
image: ## build the container image, and say how large it is
	@deploy/image/build

.PHONY: image-archive
image-archive: $(VENV)/.dev ## the same without a registry, for the tests that run it
	@PYTHON=$(BIN)/python deploy/image/build --local || { [ $$? = 3 ] && [ "$$CI" != true ]; }

.PHONY: kustomize
kustomize: $(VENV)/.dev ## build kustomize for the tests of the manifests, once, if there is Go
	@$(BIN)/python -m tests.kubernetes install

.PHONY: manifests
manifests: $(VENV)/.dev ## render the examples of deploy/kubernetes again
	@$(BIN)/python -m tests.kubernetes.manifests

.PHONY: test-kubernetes
test-kubernetes: $(VENV)/.dev ## the examples in a real kubelet: as root, with Go; the first time builds it
	@PYTHON=$(BIN)/python $(BIN)/python -m tests.kubernetes

.PHONY: bench
bench: $(VENV)/.dev servers php java ## measure: a table, benchmarks/results/latest.json and a picture; ONLY=kafka-throughput for some
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(REPEATS),--repeats $(REPEATS))

.PHONY: clean
clean: ## remove what was made here
	rm -rf $(VENV) .chaos .mypy_cache .ruff_cache .hypothesis build dist *.egg-info clients/python/*.egg-info clients/java/target clients/java/*/target examples/generated/java/target examples/generated/go/bin examples/generated/go/offramp
