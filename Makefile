# The two commands a newcomer needs: `make demo` and `make test`.
# Each makes .venv if it is missing and installs what it needs.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types unit clean

demo: .venv/.installed
	$(BIN)/tailored demo

test: .venv/.installed lint types unit

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/.installed
	$(BIN)/mypy

unit: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Reinstalled whenever pyproject.toml changes.
.venv/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis demo
