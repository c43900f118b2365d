# `make demo` and `make test` do all set-up on a machine that has make and Python 3.11+ with pip and venv.
# The first interpreter that runs and is new enough; a name on the PATH may be a shim that leads nowhere.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python3.14 python; do \
  $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$name; break; }; done)
BIN := .venv/bin

.PHONY: demo test test-slow test-gpu lint format images map summaries bench bench-bad-images clean

demo: .venv/.installed
	$(BIN)/vitrail demo
	@echo "(the command lives in .venv/bin: source .venv/bin/activate puts it on your PATH)"

# Tests that load onnxruntime and OpenVINO, whose threads do not go well with tests that fork, and those that serve.
RUNTIMES := tests/prediction tests/exporting tests/serving tests/cli/test_predict.py tests/cli/test_export.py tests/cli/test_serve.py

PYTEST := $(BIN)/python -m pytest -m "not slow and not gpu" -n auto --maxprocesses 4 --dist loadfile

# Both, whatever comes of the first.
test: .venv/.installed-dev
	failed=0; \
	$(PYTEST) $(RUNTIMES:%=--ignore=%) || failed=1; \
	$(PYTEST) $(RUNTIMES) || failed=1; \
	exit $$failed

test-slow: .venv/.installed-dev
	$(BIN)/python -m pytest -m "slow and not gpu"

test-gpu: .venv/.installed-dev
	$(BIN)/python -m pytest -m gpu

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

format: .venv/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

map: .venv/.installed-dev
	$(BIN)/python docs/make_map.py

summaries: .venv/.installed-dev
	$(BIN)/python docs/make_summaries.py

bench: .venv/.installed-dev
	$(BIN)/python benchmarks/speed.py

bench-bad-images: .venv/.installed-dev
	$(BIN)/python benchmarks/bad_images.py

images: .venv/.installed-dev
	$(BIN)/python docs/make_images.py

clean:
	rm -rf .venv .pytest_cache .hypothesis .ruff_cache .import_linter_cache

.venv/bin/python:
	@test -n "$(PYTHON)" || \
	  { echo "No Python 3.11 or newer was found. Say where it is: make PYTHON=/path/to/python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: .venv/bin/python pyproject.toml
	@echo "installing vitrail and torch into .venv (a few minutes the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/.installed-dev: .venv/bin/python pyproject.toml
	@echo "installing vitrail, torch and the development tools into .venv (a few minutes the first time)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ .venv/.installed
