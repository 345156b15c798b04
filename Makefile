# Sets up .venv and runs the pipeline and the tests. `make` lists the targets.
# Another Python: make PYTHON=python3.12 install

PYTHON ?= python3
venv_python := .venv/bin/python

# pip's output goes to a file, and is shown if pip fails.
pip_log := .venv/pip.log
comma := ,
pip_install = $(venv_python) -m pip install --disable-pip-version-check --progress-bar off $(1) \
  > $(pip_log) 2>&1 || { cat $(pip_log) >&2; exit 1; }

# The versions and hashes that the checks run with. Users get the ranges of pyproject.toml.
lock := requirements-test.txt

demo := build/demo
demo_model := resnet18_32x3x32x32
demo_config := measurements/$(demo_model)/summary.yml
demo_arguments := $(demo_model) --measurements $(demo)/measurements --database $(demo)/database

# Without compiled files every process of the tests would compile all modules again.
pytest := env -u PYTHONDONTWRITEBYTECODE $(venv_python) -m pytest \
  --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

lint_imports := $(venv_python) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --no-cache --no-logo

# Types and imports are checked beside the tests, and shown after them.
define checks
@$(venv_python) -m ruff check
@$(venv_python) -m ruff format --check
@mkdir -p build
@( $(venv_python) -m mypy && $(lint_imports) ) > build/types.log 2>&1 & types=$$!; \
  $(pytest)$(1); failed=$$?; wait $$types || failed=1; cat build/types.log; exit $$failed
endef

# Prints "good", "old" or "bare"; any Python from 2.7 on can run it.
python_check := import sys; print("old" if sys.version_info < (3, 10) else "good" if all(map(__import__("importlib.util").util.find_spec, ("venv", "ensurepip"))) else "bare")
python_verdict = $(shell $(PYTHON) -c '$(python_check)' 2>/dev/null)
another_python = run "make PYTHON=python3.12 $(or $(MAKECMDGOALS),install)" with a newer Python
problem_old = $(PYTHON) is too old: opcost needs Python 3.10 or newer; $(another_python)
problem_bare = $(PYTHON) has no venv or ensurepip: install them (Debian and Ubuntu: apt install python3-venv), or $(another_python)
problem_none = $(PYTHON) does not run: install Python 3.10 or newer, or $(another_python)
python_problem = $(if $(filter good,$(1)),,$(problem_$(or $(filter old bare,$(1)),none)))
require_python = $(if $(call python_problem,$(python_verdict)),$(error $(call python_problem,$(python_verdict))))

.NOTPARALLEL:
.PHONY: help install pipeline configs coverage zoo test check test-newest lock test-all fuzz mutation release-check site clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

install: .venv/installed  ## set up .venv (torch is a download of about 5 GB); print what was found and two next steps
	@$(venv_python) -m opcost info

pipeline: .venv/installed  ## run all stages on resnet18 at 32x3x32x32, a second per operator, in build/demo/
	@mkdir -p $(demo)/$(dir $(demo_config))
	@cp measurements/operator_whitelist.yml $(demo)/measurements/
	@sed 's/^done:.*/done: false/' $(demo_config) > $(demo)/$(demo_config)
	@$(venv_python) general_pipeline_block0.py $(demo_arguments)
	@$(venv_python) general_pipeline_block1.py $(demo_arguments)
	@$(venv_python) general_pipeline_block2.py $(demo_arguments) --seconds 1
	@$(venv_python) full_model_measurement.py $(demo_arguments) --seconds 1
	@$(venv_python) compare_sum_vs_full.py $(demo_arguments)

configs: .venv/installed  ## write a summary.yml for each torchvision model that has none
	@$(venv_python) -m opcost make-configs --measurements measurements

coverage: .venv/installed  ## check that operator tuples have all FLOPs and bytes of every model -> build/counting.md (10 minutes on 2 cores)
	@mkdir -p build
	@$(venv_python) -m opcost verify coverage --output build/counting.md

zoo: .venv/installed  ## run every operator tuple of every model alone, and compare outputs and FLOPs (3 minutes on 2 cores)
	@mkdir -p build/zoo
	@cp -R measurements build/zoo/
	@$(venv_python) general_pipeline_block0.py '*' --meta --measurements build/zoo/measurements
	@$(venv_python) -m opcost verify operators '*' --measurements build/zoo/measurements

test: .venv/installed-test  ## set up .venv with the test tools; check style, types and imports; run the first tier of tests (5 minutes on 2 idle cores, 490 s of CPU)
	$(call checks, --quick)

check: .venv/installed-test  ## the same with all tests, as continuous integration does (20 minutes on 2 idle cores, 2,000 s of CPU)
	$(call checks,)

test-newest: .venv/made  ## the same with the newest packages of the day; the next `make check` puts those of the lock back
	@rm -f .venv/installed-test
	@$(call pip_install,--upgrade --upgrade-strategy eager --editable '.[test]')
	@touch .venv/installed
	$(call checks,)

lock:  ## renew requirements-test.txt, what the tests run with: the newest packages of the day, with hashes
	$(require_python)
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-annotate \
	  --custom-compile-command 'make lock' --extra test --output-file $(lock) pyproject.toml

test-all: .venv/installed-test  ## run the tests with all seeds and inputs (longer than make check)
	@$(pytest) --all-seeds

fuzz: .venv/installed-test  ## read 10,000 malformed files and 1,000 files, marks and commands of users: each is read or refused with an error message (10 to 20 minutes)
	@$(venv_python) tests/malformed_files.py --inputs 10000
	@$(venv_python) tests/malformed_files.py --inputs 1000 --users

mutation: .venv/installed-test  ## plant 100 faults in the code; list those that no test detects (an hour; of one module: FAULTS="running/plan --seed 2")
	@$(venv_python) tests/planted_faults.py $(FAULTS)

release-check: .venv/installed-test .venv/installed-site  ## run all that `make check` leaves out; nothing but a GPU and containers may be missing (80 minutes on 2 cores)
	@$(pytest) --all-seeds --no-skips
	@mkdir -p build
	@PYTHONPATH=. $(venv_python) benchmarks/operators_of_torch.py --output build/operators_of_torch.md
	@PYTHONPATH=.:tests $(venv_python) benchmarks/kills.py
	@PYTHONPATH=. $(venv_python) benchmarks/architectures.py --output build/architectures.md || true
	@$(MAKE) --no-print-directory --keep-going fuzz zoo coverage mutation

site: .venv/installed-site  ## make a site of the pages and the report of the shipped rows in build/site; a broken link is an error (a minute)
	@NO_MKDOCS_2_WARNING=1 $(venv_python) -m mkdocs build --strict
	@$(venv_python) -m opcost report --measurements measurements --database database --output build/site/report.html

clean:  ## remove build/ and the caches of tools; keep .venv, measurements/ and database/
	@rm -rf build opcost.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -not -path "./.venv/*" -prune -exec rm -rf {} +

.venv/installed: .venv/made pyproject.toml
	@echo "Installing opcost and torch into .venv: the first time a download of about 5 GB (progress: $(pip_log))."
	@$(call pip_install,--editable '.[torch$(comma)advise$(comma)predict]')
	@touch $@

.venv/installed-test: .venv/made pyproject.toml $(lock)
	@echo "Installing opcost, torch and the test tools into .venv: the first time a download of about 5 GB ($(pip_log))."
	@$(call pip_install,--require-hashes --requirement $(lock))
	@$(call pip_install,--no-deps --no-build-isolation --editable .)
	@touch .venv/installed $@

.venv/installed-site: .venv/made pyproject.toml
	@$(call pip_install,--editable '.[site]')
	@touch $@

.venv/made:
	$(require_python)
	@$(PYTHON) -m venv --clear .venv
	@touch $@

# A .venv whose Python has gone is made again.
ifneq ($(shell $(venv_python) -c 'print("runs")' 2>/dev/null),runs)
.PHONY: .venv/made
endif
