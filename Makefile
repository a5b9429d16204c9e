# make demo    a fresh clone to a running demonstration; the second time it only runs
# make test    the whole test suite
# make lint    ruff, mypy, import-linter, clang-format
# make bench   latency of the kernels and stages
#
# Everything happens in .venv. Stamps under it record what is installed, so that nothing is
# installed twice; `make clean` starts over.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMPS := $(VENV)/stamps
CXX_FILES := $(wildcard csrc/*.cpp csrc/*.hpp tests/*.cpp)
TREE := build/tree

.PHONY: demo test lint bench install format clean

demo: $(STAMPS)/package
	$(BIN)/zeromem demo

test: $(STAMPS)/test
	$(BIN)/python -m pytest -n 2 --dist loadfile

bench: $(STAMPS)/test
	$(BIN)/python -m pytest bench/latency --benchmark-only --benchmark-columns=min,median,rounds

# The sources as they are installed: kernels/ is zeromem.kernels. Checkers read files, not mappings.
lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(TREE) && mkdir -p $(TREE)/zeromem
	cp -r zeromem/. $(TREE)/zeromem && cp -r kernels $(TREE)/zeromem/kernels
	cd $(TREE) && $(CURDIR)/$(BIN)/mypy --strict --config-file $(CURDIR)/pyproject.toml \
		--cache-dir $(CURDIR)/build/mypy zeromem
	cd $(TREE) && $(CURDIR)/$(BIN)/lint-imports --no-cache $(CURDIR)/pyproject.toml
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

install: $(STAMPS)/package

$(STAMPS)/venv:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMPS)
	touch $@

# torch first and by itself: everything else then finds it there.
$(STAMPS)/torch: constraints.txt | $(STAMPS)/venv
	$(PIP) install --quiet --constraint constraints.txt torch
	touch $@

$(STAMPS)/package: pyproject.toml setup.py $(wildcard csrc/*.?pp) $(STAMPS)/torch
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(STAMPS)/test: $(STAMPS)/package
	$(PIP) install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

# Types are checked against the libraries that adapters are written for.
$(STAMPS)/lint: $(STAMPS)/test
	$(PIP) install --quiet --constraint constraints.txt --editable '.[lint]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info zeromem/_hierarchy.*.so
