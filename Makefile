# `make demo` and `make test` need Python 3.11 or newer with its venv module, and make. Everything lands in .venv.
# PYTHON chooses the interpreter; PIP_ARGS goes to pip, e.g. for a CPU-only torch (see README.md).
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check -q $(PIP_ARGS)
# The fast tests run in so many processes with one thread each; the tests of a file stay together, in their order.
WORKERS ?= 2
FAST_TESTS = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-all shapes lint format clean

help:
	@echo "make demo      install into .venv, diarize the sample recordings and score them"
	@echo "make test      install with the development tools, run the fast tests in two processes (WORKERS=8: in eight)"
	@echo "make test-all  the same, then the slow tests and, where a GPU is found, the GPU tests"
	@echo "make shapes    the fast tests with the shapes of all arrays checked"
	@echo "make lint      ruff and pyright"
	@echo "make format    let ruff rewrite the files"
	@echo "make clean     remove .venv and caches"

demo: $(VENV)/.installed
	$(BIN)/diarnorm demo

test: $(VENV)/.installed-dev
	$(FAST_TESTS) -m "not slow and not gpu"

test-all: test
	$(BIN)/python -m pytest -m "slow or gpu"

shapes: $(VENV)/.installed-dev
	$(FAST_TESTS) -q --check-shapes -m "not slow and not gpu and not compile and not unchecked"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "diarnorm needs Python 3.11 or newer; $(PYTHON) is another version. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The stamps say which dependencies .venv holds; a changed pyproject.toml installs again.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing diarnorm into $(VENV) (the first time downloads torch)"
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing diarnorm and its development tools into $(VENV) (the first time downloads torch)"
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.installed
