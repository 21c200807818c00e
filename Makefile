# The two commands a newcomer needs: `make demo` and `make test`.
# Each makes .venv if it is missing and installs what it needs.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint types unit docs clean

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

# The site, in site/: pictures are drawn, code of pages is run, and a warning or a broken link is an error.
docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python docs/draw.py
	$(BIN)/python -m pytest -q -m "pages or not pages" tests/test_readme.py tests/test_pages.py tests/test_inputs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Reinstalled whenever pyproject.toml changes.
.venv/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis demo site
