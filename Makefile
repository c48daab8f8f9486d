# Two commands do everything: `make demo` shows what tilewright does, `make test` checks that it does it.
PYTHON ?= python3
VENV ?= .venv
# What the tests install besides the package. `make test EXTRAS=test` leaves PyTorch and JAX out.
EXTRAS ?= test,frameworks
BIN := $(VENV)/bin

.PHONY: demo test test-fast lint types bench clean

demo: $(VENV)/.demo
	$(BIN)/python examples/matmul.py

test: $(VENV)/.test lint types
	TILEWRIGHT_CHECK=1 $(BIN)/python -m pytest -n auto --dist worksteal

test-fast: $(VENV)/.test
	TILEWRIGHT_CHECK=1 $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python bench/core.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
