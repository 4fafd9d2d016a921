# Everything a newcomer needs: `make run`, `make test`. Both set up .venv first, if it is not up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DISTRIBUTIONS := . plugins/std plugins/paraaegis plugins/selectiveshield plugins/sensecrypt plugins/baselines plugins/fas plugins/fedre plugins/lab plugins/kit plugins/attacks plugins/party plugins/trackers plugins/evidence plugins-contrib/borda plugins-contrib/rowlog
# Engines and libraries that most people do without: `make test` needs them, `make run` does not.
EXTRAS := plugins/ray plugins/flower plugins/search
LIBRARIES := plugins/trackers[mlflow,tensorboard,wandb]
EXTRAS_STAMP := $(VENV)/.installed-extras
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
SPREAD := -n 2 --dist loadfile --no-loadscope-reorder
RECIPE ?= recipes/paraaegis-dynamic.yaml

# Where the environment forbids it, every process of the tests would compile the program anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test types suite test-all check bench cluster federation docs setup clean

run: setup
	$(BIN)/fedplug run $(RECIPE)

test: setup $(EXTRAS_STAMP)
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 types suite

# mypy uses one core; beside the first tests it costs less of the time than before them.
types:
	$(BIN)/mypy

# A file's tests run in one process, which makes what they share once, in the order of the folders: the files that take
# longest come early.
suite:
	$(BIN)/pytest $(SPREAD)

test-all: setup $(EXTRAS_STAMP)
	$(BIN)/pytest $(SPREAD) -m ''

bench: setup
	$(BIN)/python benchmarks/he.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/round.py

# Two nodes of Ray on this machine stand for two machines.
cluster: setup $(EXTRAS_STAMP)
	$(BIN)/python -m fedplug_ray.trial recipes/bfv-fedavg.yaml --set rounds=5

# A SuperLink, and a node and a party program for each of three clients and the key server, all on this machine.
federation: setup $(EXTRAS_STAMP)
	$(BIN)/fedplug federation-try recipes/bfv-fedavg.yaml --clients 3 --set rounds=3

# The documentation as a site in site/, which opens without a server: site/index.html. In an environment of its own, since
# the builder takes seconds to install and the program minutes.
docs: $(DOCS_STAMP)
	$(DOCS_VENV)/bin/zensical build --clean --strict
	@echo "built site/index.html"

$(DOCS_STAMP): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet --constraint constraints.txt '.[docs]'
	@touch $(DOCS_STAMP)

setup: $(STAMP)

$(STAMP): constraints.txt $(addsuffix /pyproject.toml,$(DISTRIBUTIONS))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedplug needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip editables hatchling
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt torch torchvision
	$(BIN)/pip install --quiet --no-compile --no-build-isolation --constraint constraints.txt \
		-e '.[dev,torch]' $(addprefix -e ./,$(filter-out .,$(DISTRIBUTIONS)))
	@# On all cores, where pip compiles on one, and ignores likewise what is no Python 3.
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $(STAMP)

$(EXTRAS_STAMP): $(STAMP) $(addsuffix /pyproject.toml,$(EXTRAS))
	$(BIN)/pip install --quiet --no-compile --no-build-isolation --constraint constraints.txt \
		$(foreach one,$(EXTRAS) $(LIBRARIES),-e './$(one)')
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $(EXTRAS_STAMP)

clean:
	rm -rf $(VENV) $(DOCS_VENV) site .cache runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
