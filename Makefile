# Each target stands alone: it makes .venv and installs what it needs, once.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test test-full lint benchmarks clean

demo: $(INSTALLED)
	$(BIN)/layerscope demo

test: $(INSTALLED) lint
	$(BIN)/pytest -n 2

test-full: $(INSTALLED)
	$(BIN)/pytest -n 2 -m slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

benchmarks: $(INSTALLED)
	$(BIN)/python benchmarks/extract.py
	$(BIN)/python benchmarks/similarity.py
	$(BIN)/python benchmarks/startup.py

# torch first: with the pinned version present, no other package pulls another build of it.
$(INSTALLED): pyproject.toml garden/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt setuptools wheel torch
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e ./garden -e '.[dev,demo,garden]'
	touch $(INSTALLED)

clean:
	rm -rf .venv build dist src/*.egg-info garden/src/*.egg-info garden/build garden/cache
