# Everything a user or a developer does, in one word each. `make help` lists them.
# What is already made is not made again: see tools/install.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install install-test run docs check test test-static test-parallel test-kernel test-times test-fast test-changed test-board test-long planted codec-coverage coverage fuzz lock clean

LAB ?= labs/testbed12.yaml
ARGS ?=

# Lanes are expressions over the markers of tests/plugins/needs.py.
FAST := not (process or socket or hdl or kernel or slow or long)
# Tests start many programs, each of which would compile again what it imports where no bytecode is written.
PYTEST := env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m pytest
LANE := env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m tools.test_times test
# By file: some tests look at what the tests above them saw, and fixtures of a module are made once.
# SHUFFLE=seed runs the files in a random order.
BY_FILE := --dist loadfile --no-loadscope-reorder $(if $(SHUFFLE),--shuffle-files $(SHUFFLE))
PARALLEL := -n 2 $(BY_FILE)
TIMES := .venv/bin/python -m tools.test_times

# Long tests wait for half of their time, too. A proof or a search of theirs may take minutes, and more beside others.
LONG := HYPOTHESIS_PROFILE=long $(PYTEST) -n 4 $(BY_FILE) --timeout 3600

# The rooms that run on boards: what numpy 1.26, pynq, or no numba may change there.
BOARD := (board or not (process or socket or hdl or torch or kernel)) and not long
BOARD_FOLDERS := tests/fpga/bus tests/fpga/registers tests/lightning/execution tests/lightning/kit \
	tests/sim/board tests/sim/models/photonics tests/sim/rfsoc tests/sim/rfsoc_kit
CODEC_FOLDERS := tests/ocs_drivers tests/fuzz
# Files that say the word, for the sake of short collection; tests/plugins/lanes.py fails a kernel test elsewhere.
KERNEL_FILES = $$(grep -rlw kernel tests --include='test_*.py')
EVERY_BRANCH_OF_CODECS := .venv/bin/coverage report --include=$$(.venv/bin/python tests/fuzz/codec_table.py) --fail-under=100

UV_COMPILE := "$$(tools/install uv)" pip compile --upgrade --quiet --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links --python-version 3.11 --python-platform x86_64-manylinux_2_28

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

install: ## environments, and what the lab needs of the system; does nothing when they are there
	@tools/install

install-test: install ## what only tests need: of the system, and the clients of other people
	@tools/install test
	@tools/install clients

run: install ## the main job on a simulated lab (LAB=file, ARGS=options)
	@.venv/bin/testbed demo $(LAB) $(ARGS)

docs: install ## the documentation as pages of HTML, in build/site
	@tools/install docs
	.venv/bin/python -m tools.documentation build/pages
	.venv-docs/bin/mkdocs build --quiet --strict --site-dir build/site
	@echo "The documentation is in build/site: open build/site/index.html"

check: install ## static checks: format, lint, types, import arrows
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

test: install-test ## static checks, all tests but the long ones, and what each lane cost
	@$(TIMES) clear
	@.venv/bin/python tests/plugins/leftovers.py \
		$(MAKE) --no-print-directory -j 2 --output-sync=target test-kernel test-static test-board codec-coverage test-parallel \
		&& code=0 || code=$$?; $(TIMES) lanes; exit $$code

test-static: install
	@$(TIMES) run static $(MAKE) --no-print-directory check

test-times: ## what the last `make test` cost: lanes, and the slowest rooms, files, tests and fixtures
	@$(TIMES) all

test-fast: install ## what starts no process, opens no socket and takes an instant
	$(PYTEST) $(PARALLEL) -m "$(FAST)"

BASE ?= HEAD
test-changed: install-test ## the tests that a change may break (BASE=commit; by default what is not committed)
	@files=$$(.venv/bin/python -m tools.test_changed $(BASE)); \
	if [ -n "$$files" ]; then $(PYTEST) $(PARALLEL) -m "not long" $$files; fi

test-board: install-test ## what may differ on a board, on the built wheel with a board's numpy
	@tools/install board
	env -u PYTHONDONTWRITEBYTECODE PYTHONSAFEPATH=1 .venv-board/bin/python -m pytest -q $(PARALLEL) --lane board -p no:cacheprovider -m "$(BOARD)" $(BOARD_FOLDERS)

# A sixth of the time of these tests is waiting, which a third worker fills.
test-parallel: install-test
	$(LANE) parallel -n 3 $(BY_FILE) -m "not (kernel or codec or board or long)"

# Tests on kernel hosts wait for most of their time, hence four workers, and other lanes beside them.
test-kernel: install-test
	$(LANE) kernel -n 4 $(BY_FILE) -m "kernel and not long" $(KERNEL_FILES)

test-long: install-test planted ## second witnesses, more examples, larger labs, and planted faults
	$(LONG) --lane long -m "long and not kernel" --ignore tests/planted
	$(LONG) --lane long-kernel -m "long and kernel" $(KERNEL_FILES)

coverage: install-test ## which lines and branches the whole suite takes
	$(PYTEST) $(PARALLEL) --cov --cov-report= -m "not (kernel or long)"
	$(PYTEST) --cov --cov-append --cov-report=term -m "kernel and not long"

planted: install-test ## plant faults, each in a copy, and see that the named tests find them
	$(PYTEST) -q -n 2 -m "long or not long" tests/planted

# Tracing branches makes tests take two thirds longer, so only the codecs, where it is a demand, are traced.
codec-coverage: export COVERAGE_FILE := .coverage-codecs
codec-coverage: install-test ## the tests of the codecs alone, which take every branch of every codec
	$(PYTEST) -q $(PARALLEL) --lane codecs --cov=ocs_drivers --cov-report= -m codec $(CODEC_FOLDERS)
	$(EVERY_BRANCH_OF_CODECS)

fuzz: install ## fuzz the codecs until no new edge was reached for ten minutes each
	.venv/bin/python tests/fuzz/fuzz_codecs.py $(ARGS)

lock: ## resolve the requirements again (torch stays unlocked: see docs/decisions/0002)
	$(UV_COMPILE) --group installer --output-file requirements/installer.lock
	$(UV_COMPILE) --group docs --output-file requirements/docs.lock
	$(UV_COMPILE) --group clients --output-file requirements/clients.lock
	$(UV_COMPILE) pyproject.toml --group dev --extra testbed --extra service --extra traces --extra results --extra postgresql --extra sim --extra hdl --extra serve --extra kit --extra onnx --extra cluster \
		--override requirements/no-pynq.txt --output-file requirements/ci.lock
	$(UV_COMPILE) pyproject.toml --group board --extra qick --extra pynq --output-file requirements/board.lock

clean: ## remove what make made (the results in runs/ stay)
	rm -rf .tools .venv .venv-host .venv-board .venv-clients .venv-clients-python2 .venv-docs build dist htmlcov .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache *.egg-info
