# Everything a developer or CI runs. The first call of a target makes its own environment in
# .venv; later calls find a stamp there and start at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
PORT ?= 8000
DOCS_PORT ?= 8002
NAME ?= default
NODES ?= 3
SIZE ?= nodes
GPU_RESULTS ?=
GPU_PIECES ?=
GPU_MODEL ?=

# uv works in .venv whatever environment is active, with the Python that .venv has.
unexport VIRTUAL_ENV
# Compiled modules stay in .venv: without them each start compiles torch anew, for seconds.
unexport PYTHONDONTWRITEBYTECODE
export UV_PROJECT_ENVIRONMENT := $(VENV)
export UV_PYTHON_DOWNLOADS := never
# Material's notice of another builder is no warning of ours.
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
SYNC = $(BIN)/uv sync --frozen --inexact

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Environment: stamps in .venv, so that an unchanged lock costs nothing

$(BIN)/uv: hack/bootstrap.sh
	@hack/bootstrap.sh $(VENV) $(UV_VERSION)
	@touch $@

$(VENV)/.synced-run: pyproject.toml uv.lock | $(BIN)/uv
	@echo "Installing what the engine needs; the first time this fetches PyTorch (minutes)."
	@$(SYNC) --extra engine --extra local
	@touch $@

$(VENV)/.synced-dev: pyproject.toml uv.lock | $(BIN)/uv
	@echo "Installing what development needs; the first time this fetches PyTorch (minutes)."
	@$(SYNC) --extra dev --group docs
	@touch $@ $(VENV)/.synced-run

.PHONY: sync-run sync-dev
sync-run: $(VENV)/.synced-run
sync-dev: $(VENV)/.synced-dev

.PHONY: install
install: sync-dev ## Install everything for development into .venv

##@ Use

.PHONY: run
run: sync-run ## Serve a small model on PORT (8000), ask it one question, serve until Ctrl-C
	@exec $(BIN)/python -m quire_local.try_out --port $(PORT)

##@ Checks

.PHONY: check
check: sync-dev ## Check format, lint, imports, types, generated files and the documentation
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy
	@$(MAKE) verify docs-site

.PHONY: format
format: sync-dev ## Format the code and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: lint
lint: sync-dev ## Lint, and check who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache

.PHONY: typecheck
typecheck: sync-dev ## Check types
	@$(BIN)/mypy

##@ Tests

.PHONY: test
test: sync-dev ## Run the tests that need no GPU; says what this machine cannot run
	@$(BIN)/python -m pytest -m "not gpu and not nodes" $(ARGS)

.PHONY: test-nodes
test-nodes: sync-dev ## Run the tests on real Kubernetes nodes (Linux, root; minutes)
	@$(BIN)/python -m pytest -v -m nodes tests/nodes $(ARGS)

.PHONY: test-workers
test-workers: sync-dev ## Run the gateway's tests with a gateway of two workers (minutes)
	@TEST_GATEWAY_WORKERS=2 $(BIN)/python -m pytest tests/api/test_gateway*.py $(ARGS)

.PHONY: test-compiled
test-compiled: sync-dev ## Run the gateway's tests with a compiled gateway (minutes)
	@folder=$$($(BIN)/python -m hack.compile_gateway); \
	PYTHONPATH=$$folder TEST_GATEWAY_CODE="compiled code" \
		$(BIN)/python -m pytest tests/api/test_gateway*.py tests/unit/gateway $(ARGS)

.PHONY: test-gpu
test-gpu: sync-dev ## Run the tests that need a CUDA device
	@$(BIN)/python -m hack.gpu
	@$(BIN)/python -m tests.gpu $(ARGS)

.PHONY: bench-gpu
bench-gpu: sync-dev ## Measure on a CUDA device (GPU_PIECES chooses), into benchmarks/gpu/results/CARD
	@$(BIN)/python -m hack.gpu
	@results=$(GPU_RESULTS); results=$${results:-$$($(BIN)/python -m hack.gpu --results)}; \
	$(BIN)/python -m benchmarks.gpu --results $$results $(if $(GPU_MODEL),--model $(GPU_MODEL)) \
		$(GPU_PIECES)

.PHONY: fuzz
fuzz: sync-dev ## Fuzz a live server over its own OpenAPI document: 5,000 cases and more
	@QUIRE_FUZZ_EXAMPLES=400 $(BIN)/python -m pytest -s tests/api/test_fuzzing.py $(ARGS)

.PHONY: verify-clients
verify-clients: sync-dev ## Use other people's clients against the server; fetches them (minutes)
	@$(BIN)/python -m tests.clients $(ARGS)

.PHONY: bench-chaos
bench-chaos: sync-dev ## Ten minutes of load on real nodes under chaos, into benchmarks/results
	@$(BIN)/python -m benchmarks.chaos --minutes 10 --json benchmarks/results/chaos.json \
		--markdown benchmarks/results/chaos.md

.PHONY: bench
bench: sync-dev ## Run the benchmarks; results also go to build/bench/*.json
	@mkdir -p build/bench
	@$(BIN)/python -m benchmarks.scheduler --json build/bench/scheduler.json
	@$(BIN)/python -m benchmarks.http --json build/bench/http.json
	@$(BIN)/python -m benchmarks.grammars --json build/bench/grammars.json
	@$(BIN)/python -m benchmarks.bad_grammars --json build/bench/bad_grammars.json

##@ Clusters: NAME, NODES and SIZE (api, kwok or nodes) choose; see docs/development/cluster.md

.PHONY: cluster-up
cluster-up: sync-dev ## Make a Kubernetes cluster on this machine (SIZE=nodes, NODES=3)
	@$(BIN)/python -m hack.cluster up --name $(NAME) --size $(SIZE) --nodes $(NODES)

.PHONY: cluster-images
cluster-images: sync-dev ## Build quire's images and load them into the cluster's nodes
	@$(BIN)/python -m hack.cluster images --name $(NAME)

.PHONY: cluster-status
cluster-status: sync-dev ## Say what of the cluster runs
	@$(BIN)/python -m hack.cluster status --name $(NAME)

.PHONY: cluster-down
cluster-down: sync-dev ## Remove the cluster and all that it left
	@$(BIN)/python -m hack.cluster down --name $(NAME)

.PHONY: kind-up
kind-up: sync-dev ## Make a cluster with Docker and kind instead (NODES=3)
	@$(BIN)/python -m hack.cluster.kind up --nodes $(NODES)

.PHONY: kind-down
kind-down: sync-dev ## Remove it
	@$(BIN)/python -m hack.cluster.kind down

##@ Generated files

.PHONY: docs
docs: sync-dev ## Generate the reference pages, and draw the pictures
	@$(BIN)/python -m hack.reference
	@$(BIN)/python -m hack.pictures

.PHONY: docs-site
docs-site: sync-dev ## Build the documentation site into build/site; fails on any broken link
	@$(SITE) build --quiet

.PHONY: docs-serve
docs-serve: sync-dev ## Serve the documentation site at DOCS_PORT (8002), built anew on changes
	@$(SITE) serve --dev-addr 127.0.0.1:$(DOCS_PORT)

.PHONY: manifests
manifests: sync-dev ## Generate manifests/ and what of the chart is generated (builds Helm if need be)
	@$(BIN)/python -m hack.manifests
	@$(BIN)/python -m hack.chart

.PHONY: verify
verify: sync-dev ## Fail if a generated file is not what its source says
	@$(BIN)/python -m hack.reference --check
	@$(BIN)/python -m hack.pictures --check
	@$(BIN)/python -m hack.manifests --check
	@$(BIN)/python -m hack.chart --check
