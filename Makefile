# Thin: the logic is in helpers/ and pyproject.toml. The first use of any target sets up .venv.
PATH_VENV = PATH="$(CURDIR)/.venv/bin:$$PATH"
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help setup setup-compress lab test run labs check bench clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## build .venv, or go on where it stopped; returns at once when all is done
	@python3 helpers/make/install.py

setup-compress:  ## build .venv-compress, for lessons 07 to 09 and lab 09
	@python3 helpers/make/install.py compress

lab: setup  ## open JupyterLab at the first notebook (ARGS="--port 9999 --no-browser" passes flags)
	@$(PATH_VENV) jupyter lab --ip=127.0.0.1 $(AS_ROOT) --ServerApp.root_dir="$(CURDIR)" $(ARGS) \
	  notebooks/00_start_here.ipynb

test: setup  ## run every test and every notebook on a real engine (ARGS="-k memory" chooses)
	@$(PATH_VENV) python -m pytest $(ARGS)

run: setup  ## execute the course and write results/executed (ONLY=01 for one lesson)
	@$(PATH_VENV) python -m helpers.make.run $(ONLY)

labs: setup  ## execute the labs, whole, like run (ONLY=02 for one lab)
	@$(PATH_VENV) python -m helpers.make.run $(or $(addprefix labs/,$(ONLY)),labs)

check: setup  ## lint the code and the notebooks' style: seconds
	@$(PATH_VENV) ruff check .
	@$(PATH_VENV) python -m helpers.make.style

bench: setup  ## print every performance figure beside its bar
	@$(PATH_VENV) python -m helpers.make.bench $(ARGS)

clean:  ## remove the environments, caches and executed copies; your measurements in results/ stay
	rm -rf .venv .venv-compress .pytest_cache .ruff_cache .hypothesis results/executed results/report.html *.egg-info build
	find helpers tests notebooks labs -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf
