# Every target makes the environment it needs; nothing has to be installed by hand
# but a Python of 3.12 or newer.

VENV := .venv
# Folder of the programs of an environment.
PROGRAMS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(PROGRAMS)
LOWEST := .venv-lowest
STAMP := $(VENV)/.installed
LOWEST_STAMP := $(LOWEST)/.installed
# One BLAS thread: the matrices are small, and the time is then the same everywhere.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
# Modules are compiled once, not by each worker.
export PYTHONDONTWRITEBYTECODE :=
WORKERS ?= auto
# Tests evaluate PyMC models a few times, which takes less time than compiling them well: the fast ones
# evaluate them by Python, and the C of the slow ones is compiled without optimisation.
QUICK := PYTENSOR_FLAGS=mode=FAST_COMPILE,cxx=
# Tests in which other packages take part: fits, checks of scikit-learn, tables, PyMC models, files,
# plots and Dask arrays.
LOWEST_TESTS := $(addprefix tests/,contract/test_estimators.py contract/test_tables.py inference/test_datatree.py \
	inference/test_engines.py inference/test_tasks.py plots/test_every_picture.py \
	test_dask_arrays.py test_persistence.py) \
	tests/agreement/test_declared_input.py $(wildcard tests/*/test_model.py)
# Folder of the archives that `package` builds; a temporary one if not named.
DIST ?=
# Fits of bench-full side by side, of one thread each; -1 is all cores.
JOBS ?= -1

.PHONY: help install demo test test-slow bench bench-full evidence notebooks docs package test-lowest lint format clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

install: $(STAMP)  ## Create .venv with everything the other targets need

$(VENV)/.made: tools/find_python.sh
	@python="$$(sh tools/find_python.sh)" && "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	@touch $@

# What users install, which is less than a third of what the other targets need.
$(VENV)/.users: pyproject.toml $(VENV)/.made
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable ".[io]"
	@touch $@

$(STAMP): pyproject.toml $(VENV)/.made
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable ".[io,nuts,notebook,scale]" --group dev
	@touch $(STAMP)

$(LOWEST_STAMP): pyproject.toml | $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/$(PROGRAMS)/python --resolution lowest-direct \
		--editable ".[io,nuts,notebook,scale]" --group test
	@touch $(LOWEST_STAMP)

demo: $(VENV)/.users  ## Compare models on Wine; the reports are demo_output/index.html and digits.html
	$(BIN)/python examples/wine.py --output demo_output

test: $(STAMP)  ## The fast tests
	$(QUICK) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" --durations=20

test-slow: $(STAMP)  ## Statistical tests, samplers and notebooks
	PYTENSOR_FLAGS=gcc__cxxflags=-O0 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m slow --durations=20

# With a cache of compiled functions of its own: the versions of Numba delete each other's. In one
# process, since each other one imports and collects everything first.
test-lowest: $(LOWEST_STAMP)  ## Tests of what depends on other packages, with the oldest that are allowed
	NUMBA_CACHE_DIR=$(CURDIR)/$(LOWEST)/numba $(QUICK) $(LOWEST)/$(PROGRAMS)/python -m pytest -q \
		-m "not slow" -W default --durations=20 $(LOWEST_TESTS)

package: $(STAMP)  ## Build the sdist and from it the wheel, install it into an empty environment, use it
	$(BIN)/python tools/check_package.py --outdir "$(DIST)"

bench: $(STAMP)  ## Accuracy with few samples, and speed: ten minutes, data of scikit-learn
	$(BIN)/python -m benchmarks accuracy --table people --seeds 300:301 --jobs $(JOBS)
	$(BIN)/python -m benchmarks speed --only waits growth

bench-full: $(STAMP)  ## All tables and pictures of the benchmarks (hours of one core; needs BSDR_MODELS_DATA)
	-$(BIN)/python -m pip install --quiet --editable ".[bench]"
	$(BIN)/python -m benchmarks accuracy --table all --jobs $(JOBS)
	$(BIN)/python -m benchmarks model_choice --jobs 2
	$(BIN)/python -m benchmarks report --write
	$(BIN)/python -m benchmarks pictures
	$(BIN)/python -m benchmarks speed --write

evidence: $(STAMP)  ## Remake the tables and pictures of docs/evidence.md
	$(BIN)/python -m benchmarks.evidence

notebooks: $(STAMP)  ## Re-execute the notebooks in place
	$(BIN)/python tools/execute_notebooks.py

docs: $(STAMP)  ## The site, in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -j auto -b html -q -W --keep-going docs docs/_build/html
	$(BIN)/python tools/check_site.py docs/_build/html

lint: $(STAMP)  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/question.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml

format: $(STAMP)  ## Apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove the environment and what runs have left
	rm -rf $(VENV) $(LOWEST) demo_output docs/_build docs/notebooks docs/reference/generated .pytest_cache .ruff_cache .mypy_cache
