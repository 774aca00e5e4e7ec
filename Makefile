# What a person types. `make help` lists it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Elsewhere than on a machine whose index holds the CPU build of torch, take it from PyTorch itself:
#   make demo TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
TORCH_INDEX_URL ?=
EXTRAS := server,agent,torch,dev
export DEVICES DEMO_FAULT

.PHONY: help demo test check bench system-deps install clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: install  ## train real images on engines that come and go, and prove that nothing changed
	@$(BIN)/python examples/demo

test: check  ## checks and the whole test suite
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check: install  ## ruff, mypy strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

bench: install  ## the figures: one script a claim
	@ls benchmarks/[a-z]*.py >/dev/null 2>&1 || { echo "no benchmark has landed yet"; exit 0; }; \
	for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script || exit 1; done

system-deps:  ## what tests need from the system (Debian, root)
	@bash .ci/system-deps

install: $(VENV)/.installed  ## the virtual environment (done by the others)

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL) --extra-index-url https://pypi.org/simple) -c constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

clean:  ## remove the virtual environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache demo-output
