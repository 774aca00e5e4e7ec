# What a person types. `make help` lists it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Elsewhere than on a machine whose index holds the CPU build of torch, take it from PyTorch itself:
#   make demo TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
TORCH_INDEX_URL ?=
EXTRAS := server,agent,docker,kubernetes,torch,onnx,tensorboard,dev
DOCUMENTED := openedt fabric_model callbacks emetrics pyedt runai variable_batch_size edt_contract edt_runner edt_emulate edt_agent edt_provisioner edt_scheduler edt_api edt_cli
DASHBOARD := api/dashboard/packaging/dashboard_build.py
export DEVICES DEMO_FAULT FRAMEWORK CHAOS_SECONDS CHAOS_SEED CHAOS_DATABASE CHAOS_WITHOUT

.PHONY: help demo test test-all chaos check bench prove-gpu docs dashboard system-deps system-deps-clusters images secrets kubernetes-secrets test-images install clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

demo: install $(if $(filter tensorflow,$(FRAMEWORK)),$(VENV)/.tensorflow)  ## train real images on engines that come and go, and prove that nothing changed
	@$(BIN)/python examples/demo

test: dashboard $(VENV)/.tensorflow  ## what a change can break: tests in two lanes, checks; PYTEST_ARGS="..." runs plain pytest with them
ifeq ($(strip $(PYTEST_ARGS)),)
	@PYTHONPATH=tests $(BIN)/python -m suite $(SUITE_ARGS)
else
	@$(BIN)/python -m pytest $(PYTEST_ARGS)
endif

test-all: dashboard $(VENV)/.tensorflow  ## the same, and all that takes long: a hundred schedules, long storms, packages
	@PYTHONPATH=tests $(BIN)/python -m suite --tier all $(SUITE_ARGS)

chaos: install  ## kill everything at random for CHAOS_SECONDS (600); CHAOS_SEED replays, CHAOS_DATABASE=both|sqlite|postgresql|none
	@PYTHONPATH=tests:examples/demo $(BIN)/python -m chaos

check: install  ## ruff, mypy strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --python-version 3.12
	@$(BIN)/lint-imports --no-cache

bench: install $(VENV)/.tensorflow  ## the figures: one script a claim
	@ls benchmarks/[a-z]*.py >/dev/null 2>&1 || { echo "no benchmark has landed yet"; exit 0; }; \
	for script in $(filter-out benchmarks/prove_gpu.py,$(wildcard benchmarks/[a-z]*.py)); do $(BIN)/python $$script || exit 1; done

prove-gpu: install  ## one page about this machine's GPUs: equal digests, pauses, copies over PCIe, steps beside DDP; PROVE_ARGS="--device cpu"
	@$(BIN)/python benchmarks/prove_gpu.py $(PROVE_ARGS)

docs: $(VENV)/.tensorflow  ## the reference, from the docstrings, as pages in build/docs
	@KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3 PDOC_ALLOW_EXEC=1 $(BIN)/python -m pdoc --docformat google --no-show-source \
		-o build/docs $(DOCUMENTED)
	@echo "build/docs/index.html"

dashboard: $(VENV)/.installed  ## build the pages that the API serves, with Node from here or from PyPI
	@$(BIN)/python $(DASHBOARD)

system-deps:  ## what tests need from the system: packages, a Docker daemon, images (Debian, root)
	@bash .ci/system-deps

system-deps-clusters:  ## what tests of Kubernetes and Slurm need besides: built once and kept (Debian 12, root)
	@bash .ci/clusters

images: install  ## the container images of docker-compose.yml; EDT_BASE_IMAGE is what they are built upon
	@TORCH_INDEX_URL=$(TORCH_INDEX_URL) $(BIN)/python deploy/images.py

secrets:  ## passwords and folders for docker-compose.yml, as .env says
	@$(PYTHON) deploy/prepare.py

kubernetes-secrets:  ## the files of the Secrets of deploy/kubernetes
	@$(PYTHON) deploy/prepare.py --kubernetes deploy/kubernetes/secrets

test-images: install
	@EDT_SKIP_DASHBOARD=1 TORCH_INDEX_URL=$(TORCH_INDEX_URL) $(BIN)/python deploy/images.py --base openedt-test/base --tag test
	@$(BIN)/python tests/compose/images/build.py

install: $(VENV)/.installed  ## the virtual environment, and the dashboard if there is Node (done by the others)
	@$(BIN)/python $(DASHBOARD) --if-possible

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL) --extra-index-url https://pypi.org/simple) -c constraints.txt torch
	@EDT_SKIP_DASHBOARD=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

# tf-keras, the Keras 2 of older scripts, asks for `tensorflow`, whose place tensorflow-cpu takes: hence --no-deps.
$(VENV)/.tensorflow: $(VENV)/.installed
	@echo "Installing TensorFlow into $(VENV) …"
	@EDT_SKIP_DASHBOARD=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),tensorflow]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt tf-keras
	@touch $@

clean:  ## remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache demo-output api/dashboard/node_modules api/edt_api/static
