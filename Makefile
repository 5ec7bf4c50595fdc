# Everything runs from a private .venv, made on first use from hashed requirements:
# a machine needs Python 3.11 or newer, pip and make, and nothing else.
#
#   make PYTHON=/path/to/python3.13 test    use that Python (takes effect when .venv is made)
#   make lock LOCK_FLAGS=--upgrade          move the pins to the newest versions
#   make bench PARTS="chain sleepers"        measure these parts only; BENCH_ROUNDS=1 is quick

PYTHON ?=
PYTEST_FLAGS ?=
LOCK_FLAGS ?=

# Three workers keep two cores busy: many tests wait for processes and databases. More only help where there are more cores.
WORKERS ?= 3

# Which parts to measure: all of them if none is named.
PARTS ?=

CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11 python
LOCK_TOOL := uv==0.13.7

VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --no-input
CHECKED := $(PIP) install --quiet --require-hashes

# Measurements have environments of their own: one for Perdure, one for each that it is measured against. Their
# Python is the system's if it has one: a distribution's build is optimised, and one that was compiled on the
# machine mostly is not.
BENCH := .venv-bench
RIVAL := $(BENCH)/dbos
RESTATE := $(BENCH)/restate
BENCH_CANDIDATES := /usr/bin/python3 $(CANDIDATES)

# Restate's server comes from npm. Without npm its part of the benchmarks is left out, and the report says so.
# Nothing that a package would execute when it is installed is executed.
NPM := $(shell command -v npm 2>/dev/null)
NPM_FLAGS := --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error

# The site builder has an environment of its own, so that its requirements never mix with Perdure's.
SITE_TOOL := $(VENV)/site-tool

# Compiled in place when Perdure is installed; without a C compiler nothing is, and all works.
COMPILED := $(wildcard src/perdure/*/*/compiled/*.[ch])

# Recipes share one .venv, and "the first failure stops" needs an order.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Settings of the caller's shell that would redirect the interpreter or pip away from .venv,
# or make a child `make` of some test wait on our job server. Without bytecode files each of the
# hundreds of processes that the tests start would compile all modules: twice the time of an import.
unexport PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE VIRTUAL_ENV __PYVENV_LAUNCHER__ MAKEFLAGS MFLAGS
export PIP_USER := 0

# An install that was cut short leaves .venv/.unfinished; a copied or moved tree leaves an editable
# install that points at the old place; an upgraded system leaves a dead interpreter link.
# In each case .venv is made again from nothing.
SOUND := $(shell [ -x $(RUN) ] && [ ! -e $(VENV)/.unfinished ] \
	&& [ "$$(cat $(VENV)/.python-stamp 2>/dev/null)" = "$$(pwd -P)" ] && echo yes)

.PHONY: help demo dashboard dashboard-demo browser venv test test-deep bench measure lint types contracts pytest docs format dist lock clean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.runtime-stamp ## a worker is killed with SIGKILL in the middle of a step; its run resumes
	@$(VENV)/bin/perdure demo --keep build/demo

dashboard-demo: $(VENV)/.runtime-stamp ## a shop whose runs wait, fail, retry and stream, and the dashboard that shows them
	@$(VENV)/bin/perdure demo --dashboard

dashboard: ## build the dashboard from its sources, into src/perdure/dashboard/static; needs node 20 and npm
	$(NPM) ci --prefix dashboard $(NPM_FLAGS)
	$(NPM) run --prefix dashboard check
	$(NPM) run --prefix dashboard build

venv: $(VENV)/.dev-stamp ## make or refresh .venv with everything that development needs

test: lint types contracts pytest ## everything a change must pass; the first failure stops

lint: venv ## ruff: rules and format
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check

types: venv ## mypy, strict
	$(RUN) -m mypy

contracts: venv ## import-linter: layers import downwards only
	$(VENV)/bin/lint-imports --no-logo

# The tests of the dashboard need a browser. Where it can't be installed, they are skipped and say why.
BROWSERS := chromium chromium-browser google-chrome

browser: ## install Chromium for the tests of the dashboard, where this user may
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing Chromium"; \
		{ apt-get install -qq -y chromium || { apt-get update -qq && apt-get install -qq -y chromium; }; } \
			>/dev/null 2>&1 && exit 0; \
	fi; \
	echo "no Chromium: the tests of the dashboard in a browser are skipped; install the package chromium to run them"

pytest: venv browser
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_FLAGS)

test-deep: venv ## the long tests only: explorers, chaos, differential
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal -m deep $(PYTEST_FLAGS)

bench: ## measure, beside the bare drivers, DBOS and Restate
	@$(MAKE) --no-print-directory VENV=$(BENCH)/ours CANDIDATES="$(BENCH_CANDIDATES)" \
		PYTHON="$(PYTHON)" PARTS="$(PARTS)" measure

measure: venv $(RIVAL)/.stamp $(RESTATE)/.stamp $(if $(NPM),$(RESTATE)/server/.stamp)
	$(RUN) -m bench $(PARTS)

docs: venv $(SITE_TOOL)/.stamp ## write docs/reference from the code, and build the site: build/site/html/index.html
	$(RUN) -m tools.reference
	$(RUN) -m tools.site
	cd build/site && "$(abspath $(SITE_TOOL))/bin/zensical" build --strict

format: venv ## rewrite the sources into the project's format
	$(RUN) -m ruff check --fix-only
	$(RUN) -m ruff format

# The wheel is built from the sdist. --no-isolation: the backend is the hashed one from build.txt.
# The file list of an earlier build would be added to this one.
dist: venv ## build the sdist and the wheel into dist/
	rm -rf dist src/perdure.egg-info
	$(RUN) -m build --no-isolation

clean: ## remove the environments and every cache
	rm -rf $(VENV) $(BENCH) build dist src/perdure.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

ifneq ($(SOUND),yes)
$(VENV)/.python-stamp: FORCE
endif

# Prints the interpreter behind a virtual environment too, because the active environment may be
# the very .venv that is about to be removed.
define FIND_PYTHON
probe='import sys; \
v = sys.version_info; \
print("%d.%d.%d" % v[:3] if v < (3, 11) else getattr(sys, "_base_executable", sys.executable)); \
sys.exit(v < (3, 11))'; \
found=; old=; \
for candidate in $(if $(PYTHON),"$(PYTHON)",$(CANDIDATES)); do \
	if answer=$$("$$candidate" -c "$$probe" 2>/dev/null); then found=$$answer; break; fi; \
	old="$$old $$candidate is $${answer:-not installed};"; \
done; \
if [ -z "$$found" ]; then \
	echo "perdure needs Python 3.11 or newer:$$old name one with make PYTHON=/path/to/python3" >&2; \
	exit 1; \
fi
endef

# Some systems ship Python and pip without ensurepip. There the system's pip fills the bare
# environment; build.txt carries pip itself, so the environment has its own from then on.
$(VENV)/.python-stamp:
	@$(FIND_PYTHON); \
	rm -rf $(VENV); \
	echo "making $(VENV) with $$found"; \
	"$$found" -m venv $(VENV) >/dev/null 2>&1 || { \
		rm -rf $(VENV); \
		"$$found" -m venv --without-pip $(VENV) \
		&& "$$found" -m pip --disable-pip-version-check --python $(RUN) \
			install --quiet --require-hashes -r requirements/build.txt; \
	} || { rm -rf $(VENV); exit 1; }
	@pwd -P > $@

# --no-build-isolation: the build backend is the hashed one from build.txt, never a fresh download.
$(VENV)/.runtime-stamp: $(VENV)/.python-stamp requirements/build.txt requirements/runtime.txt pyproject.toml setup.py \
		$(COMPILED)
	@echo "installing the runtime requirements"
	@touch $(VENV)/.unfinished
	@$(CHECKED) -r requirements/build.txt -r requirements/runtime.txt
	@$(PIP) install --quiet --no-build-isolation --no-deps --editable .
	@rm $(VENV)/.unfinished
	@touch $@

$(VENV)/.dev-stamp: $(VENV)/.runtime-stamp requirements/dev.txt
	@echo "installing the development requirements"
	@touch $(VENV)/.unfinished
	@$(CHECKED) -r requirements/dev.txt
	@rm $(VENV)/.unfinished
	@touch $@

# Filled by the pip of .venv, since it needs none of its own.
$(RIVAL)/.stamp: $(VENV)/.python-stamp requirements/bench.txt
	@echo "making $(RIVAL) for the benchmarks"
	@rm -rf $(RIVAL)
	@$(RUN) -m venv --without-pip $(RIVAL)
	@$(PIP) --python $(RIVAL)/bin/python install --quiet --require-hashes -r requirements/bench.txt
	@touch $@

$(RESTATE)/.stamp: $(VENV)/.python-stamp requirements/restate.txt
	@echo "making $(RESTATE) for the benchmarks"
	@rm -rf $(RESTATE)
	@$(RUN) -m venv --without-pip $(RESTATE)
	@$(PIP) --python $(RESTATE)/bin/python install --quiet --require-hashes -r requirements/restate.txt
	@touch $@

$(RESTATE)/server/.stamp: $(RESTATE)/.stamp requirements/restate/package-lock.json
	@echo "installing Restate's server"
	@rm -rf $(RESTATE)/server
	@mkdir $(RESTATE)/server
	@cp requirements/restate/package.json requirements/restate/package-lock.json $(RESTATE)/server
	@$(NPM) ci --prefix $(RESTATE)/server $(NPM_FLAGS) >/dev/null
	@touch $@

$(SITE_TOOL)/.stamp: $(VENV)/.python-stamp requirements/docs.txt
	@echo "making $(SITE_TOOL) for the docs site"
	@rm -rf $(SITE_TOOL)
	@$(RUN) -m venv --without-pip $(SITE_TOOL)
	@$(PIP) --python $(SITE_TOOL)/bin/python install --quiet --require-hashes -r requirements/docs.txt
	@touch $@

# One pin per package across the files: each is constrained by those before it; dev.txt, bench.txt, restate.txt and
# docs.txt by the first two only, since these four never share an environment. The tool lives in a throw-away
# environment, so that locking never depends on what is being locked. Without npm, Restate's server keeps its pin.
lock: ## write requirements/*.txt again from pyproject.toml and requirements/*.in
	@$(FIND_PYTHON); \
	tool=$$(mktemp -d) && trap 'rm -rf "$$tool"' EXIT && trap 'exit 130' INT TERM \
	&& "$$found" -m venv "$$tool" \
	&& "$$tool/bin/python" -m pip --disable-pip-version-check install --quiet '$(LOCK_TOOL)' \
	&& compile() { \
		"$$tool/bin/uv" pip compile --quiet --no-config --universal --python-version 3.11 \
			--generate-hashes --no-emit-index-url --no-emit-find-links \
			--custom-compile-command 'make lock' $(LOCK_FLAGS) "$$@" >/dev/null; \
	} \
	&& cd requirements \
	&& compile build.in -o build.txt \
	&& compile ../pyproject.toml --extra cli --extra server -c build.txt -o runtime.txt \
	&& compile ../pyproject.toml --extra cli --extra server --extra client --group ../pyproject.toml:dev \
		-c build.txt -c runtime.txt -o dev.txt \
	&& compile --group ../pyproject.toml:bench -c build.txt -c runtime.txt -o bench.txt \
	&& compile --group ../pyproject.toml:restate -c build.txt -c runtime.txt -o restate.txt \
	&& compile docs.in -c build.txt -o docs.txt \
	&& if [ -n "$(NPM)" ]; then \
		case "$(LOCK_FLAGS)" in *--upgrade*) rm -f restate/package-lock.json;; esac; \
		$(NPM) install --prefix restate --package-lock-only --omit-lockfile-registry-resolved $(NPM_FLAGS) >/dev/null; \
	fi
