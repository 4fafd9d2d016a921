# Everything a newcomer needs: `make run`, `make test`. Both set up .venv first, if it is not up to date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DISTRIBUTIONS := .[dev,exact] plugins/ledger plugins/runs plugins/terminal plugins/std plugins/paraaegis plugins/selectiveshield plugins/sensecrypt plugins/baselines plugins/fas plugins/fedre plugins/lab plugins/kit plugins/attacks plugins/party plugins/trackers plugins/evidence plugins/audit plugins/secagg plugins/threshold plugins/features plugins/analytics plugins/policy plugins/deployed plugins/robust plugins/recipes plugins-contrib/altfl plugins-contrib/borda plugins-contrib/clover plugins-contrib/llg plugins-contrib/rowlog
# Engines and libraries that most people do not need: `make test` needs them, `make run` does not.
EXTRAS := plugins/ray plugins/flower plugins/nvflare plugins/search
LIBRARIES := plugins/trackers[mlflow,tensorboard,wandb] plugins/std[tables,huggingface,dicom]
EXTRAS_STAMP := $(VENV)/.installed-extras
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
DIST_VENV := .venv-dist
DIST_STAMP := $(DIST_VENV)/.installed
# Installed by no target; `make lock` looks for its versions anyway.
OTHERS := .[browser] plugins/runs[pandas] plugins/features[timm,huggingface] plugins/deployed[hocon] plugins/nvflare[nvflare]
# Every distribution of a lock is in it, so pip looks for none.
LOCKED := install --quiet --no-compile --no-deps --require-hashes --requirement
OWN := install --quiet --no-compile --no-deps --no-build-isolation
SPREAD := -n 3 --dist loadfile --no-loadscope-reorder
RECIPE ?= recipes/paraaegis-dynamic.yaml

# If the environment forbids bytecode, every process of the tests would compile the program again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test types suite test-all check bench cluster federation docs dist setup lock clean

run: setup
	$(BIN)/fedplug run $(RECIPE)

test: setup $(EXTRAS_STAMP)
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 types suite

# mypy uses one core. In parallel with the first tests it costs less time than before them.
types:
	$(BIN)/mypy

# A file's tests run in one process, which makes shared objects once, in the order of the folders. The slowest files
# come early. Three processes keep two cores busy: tests of engines wait for other processes.
suite:
	$(BIN)/pytest $(SPREAD)

test-all: setup $(EXTRAS_STAMP)
	$(BIN)/pytest $(SPREAD) -m ''

bench: setup
	$(BIN)/python benchmarks/he.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/round.py

# Two nodes of Ray on this machine represent two machines.
cluster: setup $(EXTRAS_STAMP)
	$(BIN)/python -m fedplug_ray.trial recipes/bfv-fedavg.yaml --set rounds=5

# A SuperLink, and a node and a party program for each of three clients and the key server, all on this machine.
federation: setup $(EXTRAS_STAMP)
	$(BIN)/fedplug federation-try recipes/bfv-fedavg.yaml --clients 3 --set rounds=3

# The documentation as a site in site/, which opens without a server: site/index.html. In a separate environment,
# since the builder takes seconds to install and the program minutes.
docs: $(DOCS_STAMP)
	$(DOCS_VENV)/bin/zensical build --clean --strict
	@echo "built site/index.html"

$(DOCS_STAMP): locks/docs.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip $(LOCKED) locks/docs.txt
	@touch $(DOCS_STAMP)

# A wheel and a sdist of every distribution in dist/, ready to upload: docs/releasing.md. The tools are in a separate
# environment, like those of the documentation.
dist: $(DIST_STAMP)
	$(DIST_VENV)/bin/python release/build.py
	$(DIST_VENV)/bin/twine check --strict dist/*

$(DIST_STAMP): locks/release.txt
	$(PYTHON) -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/pip $(LOCKED) locks/release.txt
	@touch $(DIST_STAMP)

setup: $(STAMP)

folders = $(foreach one,$(1),$(firstword $(subst [, ,$(one))))

$(STAMP): locks/pip.txt locks/setup.txt constraints.txt $(addsuffix /pyproject.toml,$(call folders,$(DISTRIBUTIONS)))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedplug needs Python 3.11 or newer: make PYTHON=python3.12")'
	@echo "1/4 an environment in $(VENV)/, with pip"
	@$(PYTHON) -m venv $(VENV)
	@# First, since that of a new environment is slower at what follows.
	@$(BIN)/python -m pip $(LOCKED) locks/pip.txt
	@echo "2/4 the $$(grep -c == locks/setup.txt) libraries of locks/setup.txt: 0.2 GB to fetch, 0.8 GB on disk"
	@$(BIN)/pip $(LOCKED) locks/setup.txt
	@# Not locked: which build is right depends on the machine. See docs/decisions.md.
	@echo "3/4 torch and torchvision: 0.2 GB to fetch and 0.7 GB on disk; builds with CUDA have 5 GB on disk"
	@$(BIN)/pip install --quiet --no-compile --constraint constraints.txt torch torchvision
	@echo "4/4 fedplug's own distributions, in place"
	@$(BIN)/pip $(OWN) $(addprefix -e ./,$(call folders,$(DISTRIBUTIONS)))
	@# Python compiles what is imported, a tenth of all. The first command need not wait for that.
	@$(BIN)/python -c "import tenseal, torch" & $(BIN)/python -c "import matplotlib.pyplot, sklearn.datasets"; wait
	@touch $(STAMP)

$(EXTRAS_STAMP): $(STAMP) locks/extras.txt $(addsuffix /pyproject.toml,$(EXTRAS))
	@echo "what tests need besides, Ray and Flower among it: 0.2 GB to fetch, 0.5 GB on disk"
	@$(BIN)/pip $(LOCKED) locks/extras.txt
	@$(BIN)/python -c "import hypothesis, opacus, pytest, ray, scipy.stats" & \
		$(BIN)/python -c "import flwr.supernode.cli, optuna, pandas" & \
		$(BIN)/pip $(OWN) $(addprefix -e ./,$(EXTRAS)); code=$$?; wait; exit $$code
	@touch $(EXTRAS_STAMP)

# Resolves the requirements of the pyproject.toml files, and notes the versions with the hashes of their files. Versions
# do not change unless they must; `make lock UPGRADE=--upgrade` takes the newest.
lock: setup $(EXTRAS_STAMP)
	$(BIN)/python locks/renew.py $(UPGRADE) --setup $(DISTRIBUTIONS) --extras $(EXTRAS) $(LIBRARIES) --docs .[docs] --release .[release] --others $(OTHERS)
	$(MAKE) setup $(EXTRAS_STAMP) $(DOCS_STAMP) $(DIST_STAMP)
	$(BIN)/python locks/licences.py
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) $(DOCS_VENV) $(DIST_VENV) dist site .cache runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
