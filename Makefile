# Start with `make demo` and `make test`. Each creates .venv if it is missing and installs what it needs.

PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)

.PHONY: demo test test-all reproduce lint types unit coverage docs oldest audit dist test-built release-check clean

demo: .venv/.demo
	$(BIN)/python -m studies.demo

# mypy runs while pytest compiles the kernels, which takes one core.
test: .venv/.installed
	$(MAKE) --no-print-directory -j2 lint types unit

# All tests: also the slow ones, those of the studies, and the code of the documentation.
test-all: .venv/.installed lint types
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "pages or not pages"

# The paper's experiments, with all seeds: hours.
reproduce: .venv/.installed
	$(BIN)/python -m studies reproduce all

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/.installed
	$(BIN)/mypy

unit: .venv/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Build the site in site/: draw the figures, run the code of the pages, and stop at any warning or broken link.
docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/python docs/draw.py
	$(BIN)/python -m pytest -q -m "pages or not pages" tests/docs tests/test_inputs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Branch coverage; TESTS="tests/test_losses.py ..." runs some tests only. Compiled functions count as missed.
coverage: .venv/.installed
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Reinstalled whenever pyproject.toml changes.
.venv/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@ .venv/.demo

# The package and matplotlib, without test tools.
.venv/.demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . matplotlib
	touch $@

# Run the tests with the oldest versions that pyproject.toml allows; `make test` uses the newest.
# Old packages cause deprecation warnings with new versions of others, so these are not errors here.
oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-oldest/bin/uv pip install --quiet --python .venv-oldest/bin/python --resolution lowest-direct -e '.[test]'
	.venv-oldest/bin/python -m pytest -n 2 --dist worksteal -W ignore::DeprecationWarning

# Look for known vulnerabilities of installed packages; an unknown package is an error.
audit: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --strict --skip-editable

# Build wheel and sdist in dist/, and check their metadata and contents.
dist: .venv/.installed
	rm -rf dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/python release/contents.py dist

# Installs what was built into a fresh environment and runs a selection of tests there, away from the checkout:
#   make test-built PYTHON=python3.12 BUILT=dist/*.tar.gz
BUILT ?= $(wildcard dist/*.whl)
OUTSIDE ?= $(or $(TMPDIR),/tmp)/tailored-built-$(notdir $(PYTHON))
SELECTED := tests/test_import.py tests/learners/test_sklearn.py tests/learners/test_predict_tasks.py \
	tests/model_files tests/learners/test_tables_of_words.py tests/cli

test-built:
	rm -rf $(OUTSIDE)
	$(PYTHON) -m venv $(OUTSIDE)/venv
	$(OUTSIDE)/venv/bin/python -m pip install --quiet --disable-pip-version-check '$(abspath $(firstword $(wildcard $(BUILT))))[test]'
	cp -r tests pyproject.toml $(OUTSIDE)
	cd $(OUTSIDE) && venv/bin/python -c "import tailored, sys; assert 'site-packages' in tailored.__file__; print(tailored.__version__, sys.version)"
	cd $(OUTSIDE) && venv/bin/python -m pytest -q $(SELECTED)

# All checks before an upload.
release-check: test dist
	$(MAKE) test-built
	$(MAKE) test-built BUILT='dist/*.tar.gz'
	@echo 'Ready. Upload with: $(BIN)/twine upload dist/*'

clean:
	rm -rf dist .venv .venv-oldest .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* .mutation demo site
