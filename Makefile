# Everything a developer runs. Every target sets up what it needs: the virtual environment from constraints.txt, Debian
# packages (as root), and through tests/cluster the Kubernetes programs, a Docker engine, images and a kind cluster.
# Long steps say what they do and how long they took; what is slow to make is kept in ~/.cache/cpuplan.

SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
CLUSTER := $(BIN)/python -m tests.cluster
DEMO := $(BIN)/python -m tests.demo

# Image: its name, and its base (default: python:3-slim, or one from Debian packages where no registry brings that).
IMAGE ?= cpuplan:dev
BASE ?=

# The folder of real machines, cgroups and vectors, where there is one beside the checkout.
CPUPLAN_CASES ?= $(if $(wildcard ../shared/machines/index.json),$(abspath ../shared))
ifneq ($(CPUPLAN_CASES),)
export CPUPLAN_CASES
endif

# Debian packages that building and testing need, beside those that tests/cluster installs itself.
APT_PACKAGES := gcc libc6-dev python3-venv clang spin

.PHONY: help venv packages image cluster-up cluster-down demo demo-down lint test soak bench clean

help:
	@echo "make lint          ruff, mypy, import contracts"
	@echo "make test          everything, with a real kind cluster (CPUPLAN_KEEP_CLUSTER=1 keeps it)"
	@echo "make cluster-up    the kind cluster of the tests; make cluster-down removes it"
	@echo "make image         the product image $(IMAGE); the default one is loaded into that cluster where it runs"
	@echo "make demo          from kubectl annotate to the plan, on a cluster of its own; make demo-down removes it"
	@echo "make soak          long searches: 100,000 random histories of a ledger, 300 stories of a node, 5,000 fuzzed inputs per parser,"
	@echo "                   10,000,000 rounds of the hand-off with dying proxies, and its model with three rounds"
	@echo "make bench         speed against its bounds: import, reading a host, planning, the hand-off; fails where one is exceeded"
	@echo "make clean         what was built in the checkout"

venv: .venv/installed

.venv/installed: constraints.txt | packages
	@echo "==> installing the Python packages of constraints.txt into .venv"
	@start=$$SECONDS; $(PYTHON) -m venv .venv \
	  && $(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement constraints.txt \
	  && touch $@ && echo "    done in $$((SECONDS - start)) s"

packages:
	@missing=$$(for package in $(APT_PACKAGES); do \
	    dpkg-query --show --showformat='$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed || echo $$package; \
	  done); \
	if [ -n "$$missing" ] && command -v apt-get >/dev/null; then \
	  if [ "$$(id -u)" != 0 ]; then echo "Debian packages are missing; as root: apt-get install" $$missing >&2; exit 1; fi; \
	  echo "==> installing Debian packages:" $$missing; \
	  apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing >/dev/null; \
	fi

image: venv
	@$(CLUSTER) image --tag $(IMAGE) $(if $(BASE),--base $(BASE))

cluster-up: venv
	@$(CLUSTER) up

cluster-down: venv
	@$(CLUSTER) down

demo: venv
	@$(DEMO) up

demo-down: venv
	@$(DEMO) down

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --package tests.cluster
	PYTHONPATH=operator:. $(BIN)/lint-imports

# Ring 2 mostly waits, so ring 1 and the README's commands run beside it; their output is shown at the end. The
# cluster goes down whatever came out.
test: venv
	@$(CLUSTER) programs >/dev/null
	@mkdir -p build; status=0; \
	echo "==> ring 1 and the README's commands run beside ring 2 (build/ring1.log, shown at the end)"; \
	$(BIN)/python -m pytest --require-all -m "not cluster" tests >build/ring1.log 2>&1 & ring1=$$!; \
	trap "kill $$ring1 2>/dev/null" EXIT; \
	{ $(CLUSTER) up && $(CLUSTER) image && $(BIN)/python -m pytest --require-all -m cluster tests; } || status=$$?; \
	echo "==> ring 1 and the README's commands"; \
	wait $$ring1 || status=$$?; cat build/ring1.log; \
	[ "$$CPUPLAN_KEEP_CLUSTER" = 1 ] || $(CLUSTER) down || status=$$?; \
	exit $$status

# What takes too long for every change; a sample of each runs in make test.
soak: venv
	PYTHONPATH=operator:. $(BIN)/python -m tests.planning.ledger_search 100000
	PYTHONPATH=operator:. $(BIN)/python -m tests.agent.story_search 300
	CPUPLAN_FUZZ_EXAMPLES=5000 $(BIN)/python -m pytest -q --timeout=3600 tests/fuzz
	HOSTFLAG_SOAK=1 $(BIN)/python -m pytest -q --timeout=7200 tests/hostflag/test_model.py \
	  tests/hostflag/test_schedules.py tests/hostflag/test_stress.py

bench: venv
	@status=0; \
	PYTHONPATH=operator:. $(BIN)/python -m benchmarks || status=1; \
	$(BIN)/python -m hostflag_native bench --require-bars || status=1; \
	exit $$status

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
