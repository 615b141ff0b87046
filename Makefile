# Everything a user or a developer does, in one word each. `make help` lists them.
# What is already made is not made again: see tools/install.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install run check test test-board test-full test-long planted codec-coverage coverage fuzz lock clean

LAB ?= labs/testbed12.yaml
ARGS ?=

# The tests that need no more than numpy, in the environment of a board.
# Drivers against twins at length, with extras, and planning for minutes are for the whole suite.
BOARD_TESTS := tests/ocs_drivers tests/sim tests/design tests/fpga/bus tests/fpga/registers tests/lightning \
	tests/test_doctests.py \
	--ignore tests/ocs_drivers/test_truth.py --ignore tests/ocs_drivers/test_scpi_1xn_truth.py \
	--ignore tests/ocs_drivers/test_conformance.py --ignore tests/ocs_drivers/test_families.py \
	--ignore tests/design/search --ignore tests/design/test_second_topology.py \
	--ignore tests/design/test_reproduction_parts.py --ignore tests/design/test_reproduction_topoopt.py

# Tests that need no namespaces and share nothing: two at a time.
PARALLEL_FOLDERS := tests/ocs_drivers tests/sim tests/fpga tests/lightning tests/design
PARALLEL_TESTS := $(PARALLEL_FOLDERS) --ignore tests/sim/lab
OTHER_TESTS := tests $(addprefix --ignore ,$(PARALLEL_FOLDERS))

# Tests of the codecs alone: bytes and words, and little else.
CODEC_TESTS := tests/fuzz $(addsuffix .py,$(addprefix tests/ocs_drivers/test_,tl1 tl1_words scpi scpi_1xn telnet prompt_cli \
	http calient_words polatis_rest_words glimmerglass rome_words telescent_words sonic_words))
EVERY_BRANCH_OF_CODECS := .venv/bin/coverage report --include=$$(.venv/bin/python tests/fuzz/codec_table.py) --fail-under=100

UV_COMPILE := .venv/bin/uv pip compile pyproject.toml --upgrade --quiet --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --python-version 3.11 --python-platform x86_64-manylinux_2_28

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

install: ## environments and system packages; does nothing when they are there
	@tools/install

run: install ## the main job on a simulated lab (LAB=file, ARGS=options)
	@.venv/bin/testbed demo $(LAB) $(ARGS)

check: install ## static checks: format, lint, types, import arrows
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

test: check test-board codec-coverage test-full ## static checks and the whole test suite

test-board: install ## core tests on the built wheel, with a board's numpy
	@tools/install board
	PYTHONSAFEPATH=1 .venv-board/bin/python -m pytest -q -n 2 -p no:cacheprovider $(BOARD_TESTS)

# Tracing branches makes the suite take two thirds longer, so only the codecs, where it is a demand, are traced.
test-full: install ## all tests but the long ones and those of the codecs
	.venv/bin/python -m pytest -n 2 $(PARALLEL_TESTS) $(addprefix --ignore ,$(CODEC_TESTS))
	.venv/bin/python -m pytest tests/sim/lab $(OTHER_TESTS) $(addprefix --ignore ,$(CODEC_TESTS))

coverage: install ## which lines and branches the whole suite takes
	.venv/bin/python -m pytest -n 2 --cov --cov-report= $(PARALLEL_TESTS)
	.venv/bin/python -m pytest --cov --cov-append --cov-report=term tests/sim/lab $(OTHER_TESTS)

test-long: install ## the tests that take minutes
	HYPOTHESIS_PROFILE=long .venv/bin/python -m pytest -m long

planted: install ## plant faults, each in a copy, and see that the named tests find them
	.venv/bin/python -m pytest -q -n 2 -m "" tests/planted

codec-coverage: export COVERAGE_FILE := .coverage-codecs
codec-coverage: install ## the tests of the codecs alone, which take every branch of every codec
	.venv/bin/python -m pytest -q -n 2 --cov=ocs_drivers --cov-report= $(CODEC_TESTS)
	$(EVERY_BRANCH_OF_CODECS)

fuzz: install ## fuzz the codecs until no new edge was reached for ten minutes each
	.venv/bin/python tests/fuzz/fuzz_codecs.py $(ARGS)

lock: install ## resolve the requirements anew (torch stays unlocked: see docs/decisions/0002)
	$(UV_COMPILE) --group dev --extra testbed --extra sim --extra hdl --extra serve --extra kit --extra onnx --extra cluster \
		--override requirements/no-pynq.txt --output-file requirements/ci.lock
	$(UV_COMPILE) --group board --extra qick --extra pynq --output-file requirements/board.lock

clean: ## remove what make made (the results in runs/ stay)
	rm -rf .venv .venv-host .venv-board build dist htmlcov .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache *.egg-info
