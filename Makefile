# Everything runs in .venv; a fresh machine needs Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

# How many problems `make fuzz` draws.
N ?= 10000
# Of `make docs`; with `-D plot_gallery=0` the examples become pages without being run.
SPHINXOPTS ?=
# A process per core. Each gets neighbours in a file, which share what the first of them computed.
TESTS := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test test-all test-every coverage docs check-pages lint types format bench fuzz fuzz-border mutants mutate pins \
        test-matrix dist-test audit clean

# uv finds the lowest versions that pyproject.toml allows, and hashes; pip has neither.
TOOLS := .venv-matrix/tools/bin
INTERPRETERS ?= python3.11 python3.12 python3.13 python3.14
# Tests of all parts that take a minute together.
FAST := tests/driver/test_problem.py tests/language/test_losses.py tests/language/test_frames.py tests/compiler \
        tests/persistence/test_persistence.py tests/model_selection/test_jax.py tests/kernels/test_kernels.py \
        tests/certificate/test_free_columns.py

demo: .venv/demo
	$(BIN)/python examples/quickstart.py

# What takes less than a tenth of a second each, and one row of each kind.
test: lint types
	$(TESTS) -m "not slow"

# The rest, and a sixth of what repeats it with other values.
test-all: test
	$(TESTS) -m "slow and not rare"

# Everything.
test-every: test-all
	$(TESTS) -m rare

# Lines and branches that the tests execute, in all their processes. It takes twice the time of `make test`, so that a test of
# a time limit may fail.
coverage: .venv/coverage
	$(BIN)/python -m coverage erase
	-$(subst -m pytest,-m coverage run -m pytest,$(TESTS))
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

docs: .venv/docs
	rm -rf docs/api  # pages of names that are gone would be warnings
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -W --keep-going -q $(SPHINXOPTS) docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

# Links, alternative texts, width and contrast of the built pages; needs Chromium.
check-pages: docs
	$(BIN)/python docs/check_pages.py

lint types format fuzz fuzz-border: .venv/test
bench: .venv/bench
lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
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
	$(BIN)/python tests/benchmarks/declared.py --hand
	$(BIN)/python tests/benchmarks/norms.py --large
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/chart.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/estimators.py
	$(BIN)/python tests/benchmarks/defaults.py
	$(BIN)/python tests/benchmarks/texts.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/gradients.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/bags.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/benchmarks/boxes.py
	$(BIN)/python tests/benchmarks/solvers.py
	$(BIN)/python tests/benchmarks/scaling.py
fuzz:
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/fuzz/fuzzing.py $(N)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/fuzz/enumerating.py 500  # integers beside enumeration
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/fuzz/battery.py  # degenerate data
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/fuzz/differentiating.py 1000  # errors of gradients
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/fuzz/misuse.py 20000  # wrong calls of everything public
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/fuzz/forging.py $(N)  # files that nobody saved
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/fuzz/leaking.py  # what 1000 solves leave behind

# All atoms of cvxpy × attributes of variables × Parameters × places, each draw in a process of its own.
fuzz-border:
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -W ignore tests/fuzz/fuzzing_border.py $(N)

# Mutations of the checker and of its arithmetic that no test notices; see tests/certificate/equivalents.md.
mutants: .venv/mutants
	OPENBLAS_NUM_THREADS=1 $(BIN)/mutmut run
	$(BIN)/mutmut results

# Versions and hashes of all that CI installs, the newest that pyproject.toml allows.
pins: $(TOOLS)/uv
	printf 'hatchling\neditables\n' | $(TOOLS)/uv pip compile --quiet --universal --upgrade --generate-hashes --no-annotate \
	    --no-header --extra test --extra docs pyproject.toml - --output-file .ci/requirements.txt
	sed -n 's/^\([a-z].*[^ ]\) *\\$$/\1/p' .ci/requirements.txt > constraints.txt

# Fast tests with each interpreter that is found, with the lowest and with the newest versions of all packages. Old packages
# use what newer ones deprecate, so warnings are no errors here.
test-matrix: $(TOOLS)/uv
	@failed=; for python in $(INTERPRETERS); do \
	  if ! $$python -c '' 2>/dev/null; then echo "$$python: not found"; continue; fi; \
	  for versions in lowest-direct highest; do \
	    env=.venv-matrix/$$(basename $$python)-$$versions; echo "$$python, $$versions"; \
	    $(TOOLS)/uv venv --quiet --clear --python $$(command -v $$python) $$env && \
	    $(TOOLS)/uv pip install --quiet --python $$env --resolution $$versions --only-binary :all: --no-binary kernelopt \
	      --editable '.[test]' && \
	    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $$env/bin/python -m pytest -W default $(FAST) \
	      || failed="$$failed $$python:$$versions"; \
	  done; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# A wheel, made from the sdist, in an environment with nothing else.
dist-test: $(TOOLS)/uv
	rm -rf dist .venv-matrix/dist
	$(TOOLS)/uv build --quiet --python $(PYTHON)
	for file in dist/*.whl dist/*.tar.gz; do \
	  $(TOOLS)/uv venv --quiet --clear --python $(PYTHON) .venv-matrix/dist && \
	  $(TOOLS)/uv pip install --quiet --python .venv-matrix/dist --constraints constraints.txt $$file pytest && \
	  (cd .venv-matrix/dist && OPENBLAS_NUM_THREADS=1 bin/python -m pytest -q -p no:cacheprovider \
	    --import-mode=importlib --rootdir . -c /dev/null -o pythonpath=$(CURDIR)/tests \
	    $(CURDIR)/tests/driver/test_problem.py $(CURDIR)/tests/compiler/test_rules.py) || exit 1; \
	done

# Known vulnerabilities of the pinned versions; needs a network.
audit: $(TOOLS)/uv
	$(TOOLS)/uv tool run pip-audit --disable-pip --requirement .ci/requirements.txt

$(TOOLS)/uv:
	$(PYTHON) -m venv .venv-matrix/tools
	$(TOOLS)/python -m pip --disable-pip-version-check install --quiet uv

# What CI installs, each file checked by its hash. pip checks no editable install, so the project comes by itself.
.venv/locked: .venv/python pyproject.toml .ci/requirements.txt
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes --requirement .ci/requirements.txt
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	touch $@ .venv/test .venv/docs .venv/demo

# M mutations of each of five folders, drawn at random, beside the tests that cover them; continues the run before.
M ?= 300
mutate: .venv/mutants
	test -e .mutants/lines.json.gz || OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/fuzz/mutants.py map
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/fuzz/mutants.py run $(M)

.venv/python: Makefile
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "kernelopt needs Python 3.11 or newer; set PYTHON=..."'
	$(PYTHON) -m venv .venv
	touch $@

.venv/demo: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[plot,sklearn]'
	touch $@

.venv/test: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[test]'
	touch $@ .venv/demo

.venv/docs: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[docs]'
	touch $@ .venv/demo

.venv/coverage: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[coverage]'
	touch $@ .venv/test .venv/demo

# Peers of the benchmarks, and their data.
.venv/bench: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[bench]'
	touch $@ .venv/test .venv/demo

.venv/mutants: .venv/python pyproject.toml constraints.txt
	$(PIP) --editable '.[mutants]'
	touch $@ .venv/test .venv/demo

clean:
	rm -rf .venv .venv-matrix dist mutants .mutants .coverage* .mypy_cache .ruff_cache .pytest_cache build docs/_build docs/api docs/gallery docs/backreferences
