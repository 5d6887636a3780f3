# make demo   sets everything up and runs the main job: FNO on Burgers with HERO at the paper's protocol, then with our recipe
# make test   sets everything up and runs lint, types and tests, the site among them
# make docs   builds the site into site/
# make results   writes the tables and figures of docs/results.md from results/
# make audit   compares the pinned dependencies with the known vulnerabilities; needs their service on the internet
# make soak   mixed work and kills for an hour, or as long as MINUTES says; prints a summary
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

# Modules are compiled when they are first imported, which must then be kept: compiling all of them takes a minute more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test pytest lint audit soak results docs notebooks clean

demo: .venv/.installed
	$(BIN)/hero train burgers --strategy hero
	$(BIN)/hero train burgers --preset recipe
	$(BIN)/hero study recipe --seeds 1

# mypy computes in one process: beside the tests it leaves no core idle.
test: .venv/.installed-dev
	$(MAKE) --no-print-directory -j 2 lint pytest

# A worker more than cores: some wait for processes that they have started.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
pytest: .venv/.installed-dev
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

results: .venv/.installed
	$(BIN)/python -m benchmarks results

MINUTES ?= 60
soak: .venv/.installed-dev
	$(BIN)/python -m benchmarks soak --minutes $(MINUTES)

audit: .venv/.installed-dev
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	.venv/audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt --progress-spinner off

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# The site, into site/; any broken link, missing page or missing name is an error.
docs: .venv/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Runs every notebook in a kernel and keeps its outputs: a few minutes.
notebooks: .venv/.installed-dev
	$(PIP) -e '.[notebooks]'
	$(BIN)/python tools/run_notebooks.py

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/.installed-dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e '.[dev]'
	touch $@ .venv/.installed

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
