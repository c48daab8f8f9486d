# Two commands do everything: `make demo` shows what tilewright does, `make test` checks that it does it.
PYTHON ?= python3
VENV ?= .venv
# Tests run with compiled modules kept, whatever the shell says: many start Python again.
PYTEST = PYTHONDONTWRITEBYTECODE= TILEWRIGHT_CHECK=1 $(BIN)/python -m pytest -n auto --dist worksteal
# What the tests install besides the package. `make test EXTRAS=test` leaves PyTorch, JAX and onnxruntime out.
EXTRAS ?= test,frameworks,demo
# Packages whose neural networks are compiled in the tests. Only their own files are installed: what they need to run
# (OpenCV, an old TensorFlow) is far larger. `make test-models` takes all of them, and minutes.
READER := rapidocr-onnxruntime
MODELS := $(READER) silero-vad magika
MORE_MODELS := nudenet basic-pitch ddddocr
BIN := $(VENV)/bin

MINUTES ?= 10

.PHONY: demo demo-accelerator test sampled test-fast test-hidden test-all fuzz test-models test-gpu lint types bench clean

demo: $(VENV)/.demo
	$(BIN)/python examples/matmul.py
	$(BIN)/python examples/read_text.py

# The example accelerator in its simulator: utilisation, roofline and timeline of layers, a network beside the CPU.
demo-accelerator: $(VENV)/.demo
	$(BIN)/python examples/accelerator.py

# mypy works on one core, beside the tests.
test: $(VENV)/.test lint
	$(MAKE) --no-print-directory --jobs=2 types sampled

sampled: $(VENV)/.test
	$(PYTEST) -m "not heavy" --sample

test-fast: $(VENV)/.test
	$(PYTEST) -m "not slow"

# Without the packages of the system that some tests use (.ci/packages): what needs them is skipped, and nothing fails.
test-hidden: $(VENV)/.test
	$(PYTEST) -m "not heavy" --sample --hide

# Everything: the tables of cases in full, all random examples, and what takes minutes or many GiB of memory.
test-all: $(VENV)/.models lint types
	$(PYTEST)
	$(PYTEST) -m "not heavy" --hide
	$(MAKE) fuzz

# Random input for every parser, schedule step and server, for MINUTES: counts, seeds, and what was found.
fuzz: $(VENV)/.test
	cd tests && PYTHONDONTWRITEBYTECODE= TILEWRIGHT_CHECK=1 $(abspath $(BIN))/python -m fuzz --minutes $(MINUTES)

# On a machine with a CUDA device. It needs Python, NumPy, ml_dtypes, llvmlite and cuda-bindings, and no pytest.
test-gpu:
	$(PYTHON) tests/gpu/run.py

test-models: $(VENV)/.models
	$(PYTEST) tests/relay/test_relay_real_models.py

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
	$(BIN)/python -m pip install --quiet -e ".[demo]"
	$(BIN)/python -m pip install --quiet --no-deps $(READER)
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -e ".[$(EXTRAS)]"
	$(BIN)/python -m pip install --quiet --no-deps $(MODELS) || echo "not there, and their tests are left out: $(MODELS)"
	touch $@

$(VENV)/.models: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --no-deps $(MORE_MODELS)
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
