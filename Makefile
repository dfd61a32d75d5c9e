# Everything from a fresh clone with python3 (3.11 or newer) and make: `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CODE := src tests benchmarks examples tools
# Optional packages that tests marked `heavy` need.
HEAVY := analysis,diffusers,hf,llm,opf

# The PyPI package brings its own pyright; it need not ask whether there is a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all bench lint format clean

help:  ## say what can be made
	@echo "make demo      one small study from start to report, on this computer"
	@echo "make test      lint, types and the tests"
	@echo "make test-all  the slow tests, and those that need optional packages ($(HEAVY))"
	@echo "make bench     measure speed"
	@echo "make lint      ruff and pyright only"
	@echo "make format    rewrite the code in the house format"
	@echo "make clean     remove the environment and every cache"

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "python3 not found: install Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Recombine needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1):" \
	       "try make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Stamps live in the environment: a second call installs nothing unless a pin or a need changed.
$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e ".[test]"
	@touch $(VENV)/.base $@

$(VENV)/.heavy: pyproject.toml constraints.txt | $(VENV)/.test
	$(PIP) install -c constraints.txt -e ".[test,$(HEAVY)]"
	@touch $@

demo: $(VENV)/.base
	$(BIN)/recombine demo

test: lint
	$(BIN)/python -m pytest -m "not heavy and not slow" -n auto --dist loadfile --durations=10

test-all: $(VENV)/.test
	$(BIN)/python -m pytest -m "slow and not heavy" -n auto --dist loadfile --durations=10
	@$(MAKE) --no-print-directory heavy

.PHONY: heavy
heavy: $(VENV)/.heavy
	$(BIN)/python -m pytest -m heavy --durations=10

bench: $(VENV)/.base
	$(BIN)/python -m benchmarks

lint: $(VENV)/.test
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/pyright

format: $(VENV)/.test
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
