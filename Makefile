# Two commands do all the set-up: `make sweep` and `make test`. Everything else is here for daily work.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON  ?= python3
STUDY   ?= quickstart
RESULTS ?= results
PORT    ?= 5000
ARGS    ?=
JOBS    ?= 2
HOURS   ?= 1
SEED    ?= 7
OUT     ?= campaign.jsonl

VENV := .venv
PY   := $(VENV)/bin/python
PIP  := $(PY) -m pip --disable-pip-version-check --no-input -qq
DB   := $(RESULTS)/mlflow.db

# Which torch: as asked, else as the environment was made, else the pinned one.
TORCH ?= $(or $(shell sed -nE 's/.* TORCH=([a-z]+) .*/\1/p' $(VENV)/.memsweep 2>/dev/null),pinned)

# The environment is up to date when its stamp names this checkout, this choice of torch and these requirements.
STAMP := $(VENV)/.memsweep
PLACE := $(CURDIR) TORCH=$(TORCH)
WANT  := $(PLACE) $(shell cat pyproject.toml constraints.txt requirements.lock | sha256sum | cut -c1-16)

# Whether requirements.lock knows the files that this Python installs.
LOCKED := $(PY) -c 'import platform, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) or platform.libc_ver()[0] != "glibc")'

# The tests in two processes, a file at a time in each (JOBS=0: in this one, for --pdb). Another machine's Python may lack
# the plugin that does it.
SIDE_BY_SIDE := $(if $(filter-out system,$(TORCH)),-n $(JOBS) --dist loadfile --no-loadscope-reorder)

# The tests' S3 server, apart from everything else: its packages must not meet ours.
SWIFT ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/memsweep-ci/swift

# The scanner for known vulnerabilities, apart as well.
AUDIT ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/memsweep-ci/audit

# The program that makes a site of the pages, apart as well.
SITE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/memsweep-ci/site

# The programs that make and check a release.
DIST ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/memsweep-ci/dist

# Such a program, in the versions and with the hashes of its lock file: $(call TOOL,folder,name)
TOOL = rm -rf $(1); $(PYTHON) -m venv $(1); \
	  $(1)/bin/python -m pip --disable-pip-version-check --no-input -qq install --require-hashes --no-deps -r docker/$(2).lock || \
	    { rm -rf $(1); exit 2; }

# The local cluster. MEMSWEEP_CONTAINER_RIG names a script that stands in for the engine (tests/deploy/rig/containers.sh).
WORKERS  ?=
GPU      ?=
ENV_FILE ?= .env
VARIANT  := $(if $(GPU),cuda,cpu)
IMAGE    := $(or $(MEMSWEEP_IMAGE),memsweep:$(VARIANT))
RIG      := $(MEMSWEEP_CONTAINER_RIG)
COMPOSE  := MEMSWEEP_IMAGE=$(IMAGE) $(or $(RIG),docker) compose --env-file $(ENV_FILE) $(if $(GPU),--profile gpu)
SETTING   = sed -nE 's/^$(1)=//p' $(ENV_FILE)

comma    := ,

export PYTHONUNBUFFERED := 1

.PHONY: help env sweep test test-slow test-all drill test-long campaign golden bench check format ui site image pin-images audit dist cluster submit cluster-down ci-deps clean

help: ## show this list
	@printf 'memsweep: can this recurrent model hold this memory, and does it stay that way when its weights move?\n\n'
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)$$/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'
	@printf '\n  make sweep STUDY=quickstart ARGS="training.seeds=10"\n  make test ARGS="-k house -x"\n'

env: ## make or refresh .venv (TORCH=system: use the torch that is installed, add nothing)
	@case "$(TORCH)" in pinned|system) ;; *) \
	  echo "TORCH=$(TORCH) is not known: write TORCH=pinned (the version in constraints.txt) or TORCH=system." >&2; exit 2;; esac
	@if [ "$$(cat $(STAMP) 2>/dev/null)" = "$(WANT)" ]; then exit 0; fi; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "memsweep needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1 || true). Try: make env PYTHON=python3.11" >&2; exit 2; }; \
	if [ "$(TORCH)" = system ]; then \
	  $(PYTHON) -c 'import torch, numpy, pytest' || \
	    { echo "TORCH=system needs torch, numpy and pytest in $(PYTHON); install them there, or leave TORCH out." >&2; exit 2; }; fi; \
	if [ -f $(STAMP) ] && [[ "$$(cat $(STAMP))" != "$(PLACE) "* ]]; then \
	  echo "env: $(VENV) was made elsewhere or for another TORCH; making it again"; rm -rf $(VENV); fi; \
	started=$$SECONDS; \
	if [ "$(TORCH)" = system ]; then \
	  echo "env: $(VENV) over the packages of $$($(PYTHON) -c 'import sys; print(sys.prefix)'): the engine, its tests and the benchmarks, no sweeps"; \
	  $(PYTHON) -m venv --system-site-packages --without-pip $(VENV); \
	  { echo "$(CURDIR)/platform"; $(PYTHON) -c 'import sysconfig; [print(sysconfig.get_path(each)) for each in ("purelib", "platlib")]'; } \
	    > "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/memsweep.pth"; \
	  $(PY) -c 'import importlib.util as u; missing = [n for n in "scipy pandas rich hypothesis omegaconf".split() if u.find_spec(n) is None]; missing and print("env: missing:", *missing, "(the tests need them; python -m benchmarks.card does not)")'; \
	else \
	  [ -x $(PY) ] || { echo "env: making $(VENV) with $$($(PYTHON) -V)"; \
	    $(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing or broken. On Debian or Ubuntu: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 2; }; }; \
	  echo "env: installing the packages that constraints.txt pins (about 2 GB; a few minutes the first time)"; \
	  if $(LOCKED); then \
	    $(PY) docker/requirements.py list pip > $(VENV)/pip.txt; \
	    $(PIP) install --require-hashes --no-deps -r $(VENV)/pip.txt; \
	    $(PIP) install --no-deps -c constraints.txt --report $(VENV)/torch.json torch; \
	    $(PY) docker/requirements.py check-files requirements.lock $(VENV)/torch.json; \
	    $(PIP) install --require-hashes --no-deps --no-build-isolation -r requirements.lock; \
	  else \
	    echo "env: requirements.lock holds the hashes of Python 3.11 to 3.13 on Linux (glibc); this Python gets the same versions, unchecked"; \
	    $(PIP) install -c constraints.txt pip setuptools; \
	  fi; \
	  $(PIP) install -c constraints.txt torch; \
	  $(PIP) install -c constraints.txt --no-build-isolation -e '.[cluster,dev]'; \
	  $(PY) -m memsweep schema > study.schema.json; \
	fi; \
	$(PY) -c 'import memsweep, sys, torch; print(f"env: ready: memsweep {memsweep.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}")'; \
	echo "$(WANT)" > $(STAMP); \
	echo "env: took $$((SECONDS - started)) s"

sweep: env ## run STUDY (default quickstart) and print its verdicts; ARGS= overrides and flags
	@$(PY) -m memsweep sweep $(STUDY) --results $(RESULTS) $(ARGS)

test: env ## run the quick tests, JOBS=2 at once; ARGS= for pytest; skips tests whose programs (browser, ...) are missing, with a reason
	@$(PY) -m pytest $(SIDE_BY_SIDE) --durations=20 $(ARGS)

test-slow: env ## run the other tests of every day: a quarter of a second or more each, or a second together; 20 minutes in all; ARGS= for pytest
	@$(PY) -m pytest $(SIDE_BY_SIDE) --durations=20 -m "slow and not more and not drill and not long" $(ARGS)

test-all: env ## run both, all combinations of parameters, and tests of minutes (the whole quickstart); ARGS= for pytest
	@$(PY) -m pytest $(SIDE_BY_SIDE) --durations=20 -m "not drill" $(ARGS)

drill: env ## inject faults into sweeps and count the lost trials (none): more than an hour; ARGS= for pytest
	@$(PY) -m pytest -m drill $(ARGS)

test-long: env ## the tests and drills of minutes alone, which the gate leaves out; ARGS= for pytest
	@$(PY) -m pytest -m long $(ARGS)

campaign: env ## break sweeps at random for HOURS=1 with SEED=7; a line for each round goes to OUT=campaign.jsonl
	@OMP_NUM_THREADS=1 $(PY) -m tests.campaign --hours $(HOURS) --seed $(SEED) --out $(OUT) $(ARGS)

golden: env ## record golden losses of new parts; NAMES="..." records those of parts that were meant to move
	@PYTHONPATH=tests/support:tests/support/data_files $(PY) tests/trial/golden.py $(NAMES)

bench: env ## measure how fast it is, against the published loop and other peers (25 minutes); ARGS="step --quick"
	@OMP_NUM_THREADS=1 $(PY) -m benchmarks $(ARGS)

check: env ## check formatting, lint, types, import order
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

format: env ## format the code and repair lint errors that can be repaired
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .

ui: env ## open the MLflow UI on 127.0.0.1 (PORT=5000)
	@if [ ! -f $(DB) ]; then echo "There is no $(DB) yet: run 'make sweep' first, or name another folder with RESULTS=." >&2; exit 2; fi
	@$(PY) -c 'import sys; from memsweep.sweep.tracking import uri; uri.mend(uri.default_uri(sys.argv[1]), sys.argv[1])' "$(RESULTS)"
	@echo "MLflow UI: http://127.0.0.1:$(PORT) (Ctrl-C ends it)"
	@MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false \
	  $(PY) -m mlflow ui --backend-store-uri "sqlite:///$(abspath $(DB))" --host 127.0.0.1 --port $(PORT) --workers 1

site: ## build the pages as a version of the site in site/, beside the older ones: open site/index.html; needs no network
	@if [ ! -x $(SITE)/bin/mkdocs ]; then \
	  echo "site: installing mkdocs in $(SITE)"; \
	  $(call TOOL,$(SITE),site); fi
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python docs/site/versions.py site 2>&1 | sed '/^INFO /d; /^  - /d'

image: ## build the image of the cluster (GPU=1: with CUDA; TORCH_INDEX= where pip finds torch)
	@started=$$SECONDS; \
	DOCKER_BUILDKIT=1 $(if $(RIG),$(RIG),docker) build --quiet --file docker/Dockerfile --tag $(IMAGE) \
	  --build-arg VARIANT=$(VARIANT) $(if $(TORCH_INDEX),--build-arg TORCH_INDEX=$(TORCH_INDEX)) \
	  $(if $(PIP_CONFIG_FILE),--secret id=pip$(comma)src=$(PIP_CONFIG_FILE)) . >/dev/null; \
	$(or $(RIG),docker) $(if $(RIG),docker) run --rm --network none $(IMAGE) \
	  python3 /opt/memsweep/share/requirements.py check-torch $(VARIANT); \
	echo "image: $(IMAGE) is built ($$((SECONDS - started)) s)"

pin-images: ## write the digests of today into docker/Dockerfile and docker-compose.yml, which name base images by tag
	@$(PYTHON) docker/pin_images.py

audit: ## list known vulnerabilities of the pinned packages and, if it is built, of the image
	@if [ ! -x $(AUDIT)/bin/pip-audit ]; then \
	  $(call TOOL,$(AUDIT),audit); fi; \
	image=(); if docker image inspect $(IMAGE) >/dev/null 2>&1; then image=(docker run --rm --user 0 $(IMAGE) sh -c); fi; \
	$(PYTHON) docker/audit.py $(AUDIT)/bin/pip-audit constraints.txt "$${image[@]}"

dist: ## make the sdist and the wheels of a release in dist/, and check them (minutes of compiling)
	@$(call TOOL,$(DIST),dist); $(DIST)/bin/python docker/dist.py dist

cluster: image ## start a cluster on this machine: Ray, MLflow, PostgreSQL, S3 in containers (WORKERS=2, GPU=1)
	@python3 docker/environment.py .env.example $(ENV_FILE)
	@started=$$SECONDS; \
	workers=$(or $(WORKERS),$$($(call SETTING,CLUSTER_WORKERS))); \
	CLUSTER_WORKERS=$$workers $(COMPOSE) up --detach --wait --no-build --quiet-pull; \
	echo; \
	echo "cluster: up with $$workers workers ($$((SECONDS - started)) s)"; \
	echo "  MLflow         http://127.0.0.1:$$($(call SETTING,CLUSTER_MLFLOW_PORT))   user $$($(call SETTING,CLUSTER_MLFLOW_USER)), password: CLUSTER_MLFLOW_PASSWORD in $(ENV_FILE)"; \
	echo "  Ray dashboard  http://127.0.0.1:$$($(call SETTING,CLUSTER_RAY_PORT))   token: CLUSTER_RAY_TOKEN in $(ENV_FILE)"; \
	echo "  make submit STUDY=quickstart      run a study there"; \
	echo "  make cluster-down                 stop; results, runs and passwords stay"

submit: env ## run STUDY on the cluster and follow it; ARGS= overrides and flags
	@[ -f $(ENV_FILE) ] || { echo "There is no $(ENV_FILE): run 'make cluster' first." >&2; exit 2; }
	@RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$$($(call SETTING,CLUSTER_RAY_TOKEN)) \
	  $(if $(RIG),$(RIG) in) $(PY) -m memsweep submit $(STUDY) \
	  --address http://127.0.0.1:$$($(call SETTING,CLUSTER_RAY_PORT)) $(ARGS)

cluster-down: ## stop the cluster; its volumes (results, MLflow's database) stay
	@[ -f $(ENV_FILE) ] || { echo "There is no $(ENV_FILE), so no cluster was made here." >&2; exit 2; }
	@$(COMPOSE) --profile gpu down --remove-orphans
	@echo "cluster: down. 'make cluster' goes on where it was; its data: docker volume ls --filter name=memsweep"

# System packages that the tests need, each with a program that shows whether it is installed.
CI_PACKAGES := chromium=chromium,fonts-dejavu-core c++=g++ ip=iproute2 unshare=util-linux
CI_PACKAGES += munged=munge slurmctld=slurmctld slurmd=slurmd
CI_PACKAGES += $(if $(RIG),dockerd=docker.io iptables=iptables mmdebstrap=mmdebstrap)

ci-deps: ## install system packages for the tests, on Debian or Ubuntu (as root): a browser, a compiler, servers
	@if [ ! -x $(SWIFT)/bin/swift-proxy-server ]; then \
	  echo "ci-deps: installing OpenStack Swift, an S3 server, in $(SWIFT)"; \
	  $(call TOOL,$(SWIFT),swift); fi; \
	echo "ci-deps: $(SWIFT)/bin is there"; \
	if [ ! -x $(SITE)/bin/mkdocs ]; then \
	  echo "ci-deps: installing mkdocs in $(SITE)"; \
	  $(call TOOL,$(SITE),site); fi; \
	missing=(); \
	for each in $(CI_PACKAGES); do \
	  command -v $${each%%=*} >/dev/null || { packages=$${each#*=}; missing+=($${packages//,/ }); }; done; \
	if [ $${#missing[@]} = 0 ]; then echo "ci-deps: all packages are there"; exit 0; fi; \
	[ "$$(id -u)" = 0 ] || { echo "make ci-deps installs system packages ($${missing[*]}): run it as root." >&2; exit 2; }; \
	export DEBIAN_FRONTEND=noninteractive; \
	echo "ci-deps: installing $${missing[*]}"; \
	apt-get -qq -o DPkg::Lock::Timeout=300 update; \
	apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$${missing[@]}" >/dev/null

clean: ## remove the environment and caches; results stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist platform/*.egg-info
	find platform tasks tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
