# make demo      quantizes the embedded examples, prints their accuracy and says where their reports lie
# make test      runs all tests but the exhaustive tier, in WORKERS processes (3)
# make test-all  runs all tests
# make lint      checks style and types
# make format    rewrites the sources in the project's style
# make fuzz      tries random graphs, networks, files and saved models for SECONDS (600), or CASES rounds, by SEED
# make docs      builds the documents' site into build/site
# make bench     measures time and memory of every stage
# make clean     removes what the other targets made
#
# Each target installs what it needs into VENV first, once. PYTHON is the interpreter that VENV is made with.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --disable-pip-version-check --quiet

.PHONY: demo test test-all lint format fuzz docs bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(BIN)/mrt run configs/digits.yaml
	$(BIN)/mrt run configs/keywords.yaml

# One more than the cores of a small machine: tests wait for processes that they start, and two left a tenth idle.
WORKERS ?= 3
# By one thread NumPy's matrix products cannot wait for another one, as OpenBLAS was once seen to do forever.
# Neighbours share what a session caches; a worker that has none left takes some of another's.
PYTEST = OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# Tests start hundreds of processes. They find bytecode, whether or not the environment lets them write any: a process
# whose files are limited would leave it cut off.
BYTECODE = $(BIN)/python -m compileall -q mrt expansions tests benchmarks

test: $(VENV)/.installed-test
	$(BYTECODE)
	$(PYTEST) $(PYTEST_ARGS)

test-all: $(VENV)/.installed-test
	$(BYTECODE)
	$(PYTEST) --exhaustive $(PYTEST_ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

SECONDS ?= 600
SEED ?= 0
fuzz: $(VENV)/.installed-test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --seed $(SEED) $(if $(CASES),--cases $(CASES),--seconds $(SECONDS))

DOCS_VENV ?= build/docs-venv
docs: $(DOCS_VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --config-file docs/site/mkdocs.yml
	@echo build/site/index.html

bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/pipeline.py

clean:
	rm -rf $(VENV) out build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find mrt expansions tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +

# Editable, so that a change of the sources needs no new installation; a change of the metadata does.
$(VENV)/.installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable '.[test]'
	touch $@

# The site needs nothing of the package, so only what setup.cfg lists under `docs` is installed.
$(DOCS_VENV)/.installed: setup.cfg
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --disable-pip-version-check --quiet $$(sed -n '/^docs =/,/^[^ ]* =/s/^    //p' setup.cfg | tr -d ' ')
	touch $@
