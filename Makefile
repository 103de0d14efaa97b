# Every target does its own set-up: system packages (as root or with sudo), a virtual environment in .venv, the project in it.
# A distribution builds its Python with optimisations that pyenv leaves out: the tests take a third less time on it.
ifndef PYTHON
PYTHON := $(shell /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo /usr/bin/python3 || echo python3)
endif
# Every Python that may run the worker on a host.
WORKER_PYTHONS := $(addprefix worker-python-,3.9 3.10 3.11 3.12 3.13 3.14)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := .make/venv
# The tests make throwaway Unix users on a real sshd, which only root may.
ROOT   := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n --preserve-env=PATH,PYENV_ROOT,HOME PYTHONDONTWRITEBYTECODE=1)

# Also where the environment says not to write byte code: the tests start ccb and Python hundreds of times.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/.make/pycache

.DEFAULT_GOAL := help
.PHONY: help setup check unit-fast test-packages official-sdks demo demo-repl goldens tour test thorough lint types imports metrics compiled sources unit worker-pythons $(WORKER_PYTHONS) bullseye forky arm64 bench eval faults fuzz soak clean

help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) ## create .venv with everything the project needs

$(STAMP): pyproject.toml .ci/system-packages .ci/python-packages
	@.ci/system-packages venv $(PYTHON)
	@mkdir -p .make
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@.ci/python-packages $(BIN)/python --editable . --group dev
	@touch $@

demo: $(STAMP) ## one headless session on an embedded SSH server with a scripted model (REAL=1: the real model)
	@$(BIN)/python -m tests.support.demo $(if $(REAL),--real)

demo-repl: $(STAMP) ## the REPL on the same embedded SSH server
	@$(BIN)/python -m tests.support.demo --repl $(if $(REAL),--real)

goldens: $(STAMP) ## the screens that tests keep as text, anew: look at the difference
	@$(BIN)/python -m tests.support.screens.goldens

tour: $(STAMP) ## docs/guide/tour.md and its pictures, drawn from scripted sessions
	@$(BIN)/python -m tests.support.screens.tour

check: $(STAMP) ## the fast loop: lint, types, room contracts, and the tests that start no sshd, worker or ccb
	@$(MAKE) --no-print-directory -j 4 --output-sync lint types imports unit-fast

test: ## everything CI runs: lint, types, room contracts, the tests, and the core of the worker's on the oldest Python
	@.ci/system-packages venv $(PYTHON)
	@mkdir -p .make
	@$(MAKE) --no-print-directory -j 8 --output-sync CORE=1 test-packages official-sdks types compiled lint imports sources worker-python-3.9
	@$(MAKE) --no-print-directory unit

REFERENCE_CLI := .make/reference-cli
$(REFERENCE_CLI): $(STAMP) # the wheel of its SDK brings Claude Code, which `bench` compares with and `thorough` runs
	@$(BIN)/python -m pip install -q --no-deps --only-binary :all: --target $@ claude-agent-sdk==0.2.187

thorough: ## the same with the rows and tests that `make test` leaves out, and all of the worker's tests on every Python
	@$(MAKE) --no-print-directory $(REFERENCE_CLI) || echo "without Claude Code, whose tests are skipped"
	@.ci/system-packages thorough $(PYTHON) || echo "without Chromium, whose tests are skipped"
	@$(MAKE) --no-print-directory test
	@$(ROOT) env CCB_EXAMPLES=500 $(BIN)/pytest -n 5 --dist worksteal -q -m "thorough or hypothesis"
	@$(MAKE) --no-print-directory worker-pythons

lint: $(STAMP) ## ruff: lint and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP) ## mypy --strict
	@$(BIN)/mypy $(if $(CI),--cache-dir=/dev/null)

imports: $(STAMP) ## the room contracts
	@$(BIN)/lint-imports

metrics: $(STAMP) ## sizes and shapes of the code beside their limits (ARGS=--all names every place)
	@$(BIN)/python -m tests.support.metrics $(ARGS)

unit-fast: $(STAMP)
	@$(BIN)/pytest -n 4 --dist worksteal -q -m "not programs and not slow"

# Beside the packages from PyPI, which go into $(STAMP).
test-packages:
	@.ci/system-packages test $(PYTHON)

# Not a prerequisite of `unit`, which would then have to wait for one of three places behind the worker's Pythons.
official-sdks: $(STAMP) test-packages
	@.ci/official-sdks $(PYTHON)

# The tests and the worker's bundle, made once and not by each of the processes that need them.
compiled: $(STAMP)
	@$(BIN)/python -c 'from ccb.deploy.bundle import load; [each.packed("xz") for each in load().with_commands()]'
	@$(BIN)/pytest --collect-only -qq >/dev/null || true

# What reads all sources shares one process, which parses each of them once.
sources: compiled
	@$(BIN)/pytest -q -m "sources and not thorough" tests/project tests/deploy

unit: $(STAMP) ## the other tests that `make test` runs
	@$(ROOT) $(BIN)/pytest -n 6 --dist worksteal -q -m "not thorough and not sources"

worker-pythons: $(WORKER_PYTHONS) ## the worker's tests under every other Python from 3.9 to 3.14 that is installed

$(WORKER_PYTHONS): worker-python-%: $(STAMP)
	@$(ROOT) env CORE=$(CORE) .ci/worker-python $* $(PYTHON)

bullseye: $(STAMP) ## the whole session on a Debian 11 host with Python 3.9, made by debootstrap (root)
forky: $(STAMP) ## the same on Debian 14 with Python 3.14
arm64: $(STAMP) ## the same on a Debian 12 host for arm64, run by qemu-user; it takes 10 minutes to make
bullseye forky arm64:
	@.ci/system-packages test $(PYTHON)
	@$(BIN)/python -m tests.support.debian_host $@

bench: $(STAMP) $(REFERENCE_CLI) ## every benchmark as one table, each figure beside its peer in the same run
	@.ci/system-packages test $(PYTHON)
	@$(BIN)/python -m benchmarks

SET ?= ccb
eval: $(STAMP) ## try tasks: MODEL=… [SET=human-eval HOSTS='a b' TASKS='sql,race' REPEAT=3 BUDGET=10 OPTIONS='effort=high' OUT=FILE ARGS='--jobs 4']
	@$(BIN)/python -m evaluation --model "$(MODEL)" --set $(SET) $(addprefix --host ,$(HOSTS)) $(if $(TASKS),--tasks '$(TASKS)') \
		$(if $(REPEAT),--repeat $(REPEAT)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(OPTIONS),--options "$(OPTIONS)") \
		$(if $(OUT),--out $(OUT)) $(ARGS)

N ?= 1000
SEED ?= 1
JOBS ?= 8
faults: $(STAMP) ## N=1000 sessions whose links are cut and whose processes are killed (SEED=1 JOBS=8; root)
	@.ci/system-packages test $(PYTHON)
	@$(ROOT) $(BIN)/python -m tests.faults $(N) --seed $(SEED) --jobs $(JOBS)

MINUTES ?= 10
fuzz: $(STAMP) ## command lines with a new seed, judged and run, and run in the cage (MINUTES=10); terminal attacks and input; texts that are slow to parse
	@.ci/system-packages test $(PYTHON)
	@$(BIN)/python -m tests.remote.permissions.fuzz --minutes $(MINUTES) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))
	@CCB_ATTACKS=100 CCB_EXAMPLES=5000 $(BIN)/python -m pytest -q --timeout 0 tests/local/tui/test_terminal_attacks.py \
		tests/local/tui/test_terminal_input.py tests/local/tui/test_key_decoding.py tests/local/terminal/test_input_machine.py
	@$(BIN)/python -m tests.parsers.attacks --minutes $(MINUTES) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

soak: $(STAMP) ## 2,000 turns: memory of both ends, time to reattach
	@.ci/system-packages test $(PYTHON)
	@$(ROOT) $(BIN)/python -m tests.faults.soak

clean: ## remove what the targets made
	@rm -rf $(VENV) .make dist build .mypy_cache .ruff_cache .hypothesis
