# Everything runs in .venv; a fresh machine needs Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

# How many problems `make fuzz` draws.
N ?= 10000

.PHONY: demo test docs lint types format bench fuzz mutants clean

demo: .venv/demo
	$(BIN)/python examples/quickstart.py

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto  # one process per core

docs: .venv/docs
	rm -rf docs/api  # pages of names that are gone would be warnings
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

lint types format fuzz: .venv/test
bench: .venv/bench
lint:
	$(BIN)/ruff check .
types:
	$(BIN)/mypy
format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
bench:
	$(BIN)/python tests/benchmarks/overhead.py
	$(BIN)/python tests/benchmarks/kernels.py
	$(BIN)/python tests/benchmarks/certificate.py
	$(BIN)/python tests/benchmarks/factorization.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/everyday.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/chart.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/estimators.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/gradients.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/bags.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/boxes.py
	$(BIN)/python tests/benchmarks/solvers.py
	$(BIN)/python tests/benchmarks/scaling.py
fuzz:
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/fuzzing.py $(N)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/differentiating.py 1000  # errors of gradients
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/forging.py $(N)  # files that nobody saved

# Mutations of the checker and of its arithmetic that no test notices; see tests/certificate/equivalents.md.
mutants: .venv/mutants
	OPENBLAS_NUM_THREADS=1 $(BIN)/mutmut run
	$(BIN)/mutmut results

.venv/python: Makefile
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "kernelopt needs Python 3.11 or newer; set PYTHON=..."'
	$(PYTHON) -m venv .venv
	touch $@

.venv/demo: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[examples]'
	touch $@

.venv/test: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[test]'
	touch $@ .venv/demo

.venv/docs: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	touch $@ .venv/demo

# Peers of the benchmarks, and their data.
.venv/bench: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[bench]'
	touch $@ .venv/test .venv/demo

.venv/mutants: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[mutants]'
	touch $@ .venv/test .venv/demo

clean:
	rm -rf .venv mutants .mypy_cache .ruff_cache .pytest_cache build docs/_build docs/api docs/gallery docs/backreferences
