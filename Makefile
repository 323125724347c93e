# Every target sets up what it needs on a fresh machine: Python 3.11+, Java 17+ and make are enough.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null || echo .make/uv/bin/uv)
export VIRTUAL_ENV := $(CURDIR)/.venv
# Byte-code is compiled at install; the many short Python processes of Spark would else compile it again and again.
export UV_COMPILE_BYTECODE := 1

.PHONY: help setup demo test unit lint types scenarios bench peers soak lock clean

help:  ## Show the targets.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.make/uv/bin/uv:
	@mkdir -p .make
	$(PYTHON) -m venv .make/uv
	.make/uv/bin/python -m pip install --quiet uv

.make/installed: requirements.lock pyproject.toml | $(if $(findstring .make,$(UV)),$(UV))
	@mkdir -p .make
	@test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) .venv
	$(UV) pip install --quiet --require-hashes -r requirements.lock
	$(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.make/fetched: .make/installed
	$(BIN)/laneway setup
	$(BIN)/python tests/support/stores.py
	@touch $@

setup: .make/fetched  ## Install laneway into .venv, fetch Kafka's jars, Redis and PostgreSQL, build the class archives of Kafka and Spark.

demo: setup  ## See a real Kafka topic processed on Spark: order, loss and speed, checked.
	$(BIN)/laneway demo

unit: .make/installed  ## Fast tests: no broker, no Spark, under a minute.
	$(BIN)/python -m pytest -n 2 tests -m "not broker and not store and not spark and not slow and not soak"

lint: .make/installed  ## Style, types and layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

REBALANCES := $(addprefix tests/scenarios/direct/,test_members_come_and_go.py test_a_killed_worker_loses_nothing.py \
  test_a_frozen_worker_changes_nothing.py test_a_stop_during_a_rebalance.py faults/test_group_protocols.py)

# Four at a time, because each of them waits for much of its time.
test: setup lint  ## Everything, on real Kafka and real Spark.
	$(BIN)/python -m pytest tests -n 4 --dist loadfile --no-loadscope-reorder -m "not soak" --durations=20

bench: setup  ## Measure the workloads and keep the figures in bench/results.
	$(BIN)/python bench/run.py
	$(BIN)/python bench/table.py

peers: setup  ## Measure other systems beside laneway, in the same run (over an hour).
	$(BIN)/python bench/peers/run.py --laneway direct,spark --repeat 3
	$(BIN)/python bench/table.py

soak: setup  ## Long tests, rebalances 20 times, then twenty minutes of faults on three nodes, and a checker.
	$(BIN)/python -m pytest tests -n 2 --dist loadfile -m soak --durations=20
	$(BIN)/python -m pytest $(REBALANCES) -n 2 --dist load -m "not soak" --repeat 20
	$(BIN)/python bench/soak.py

lock: | $(if $(findstring .make,$(UV)),$(UV))  ## Pin every dependency with its hashes.
	$(UV) pip compile pyproject.toml --all-extras --group dev --universal --generate-hashes --no-emit-index-url --quiet \
	  --custom-compile-command "make lock" --output-file requirements.lock

clean:  ## Remove what was installed and cached in this folder.
	rm -rf .venv .make .mypy_cache .ruff_cache .hypothesis
