# One command each; every target sets up what it needs (bootstrap.sh).
PY ?=
PYTHON = .venv/bin/python
# Two for two cores, and three that wait for other processes most of the time (tests/distribution.py).
WORKERS ?= 5
MINUTES ?= 90
EXAMPLES ?= 50
SEED ?=
ARGS ?=
export PY

MUTANTS ?= 20
.PHONY: help up test long long-tests later plans previews mutants fast check conformance bench soak schema test-deps editor lock clean reset

help:
	@echo "make up           start everything here; Ctrl-C stops it"
	@echo "make test         the suite, on a throw-away PostgreSQL and Redis"
	@echo "make long         what the suite leaves out, before a release: more, longer; with make later"
	@echo "make later        what depends on time once more, ten years on as a leap day ends"
	@echo "make plans        PLANS=1000 random worlds: what a plan predicts is what then happens"
	@echo "make previews     the same of PREVIEWS=200 drains and taints made by the console's pages"
	@echo "make mutants      MUTANTS=20 changes of rules at random, from SEED=: those that no test notices"
	@echo "make fast         the tests that need no database"
	@echo "make check        style, types, import contracts, migrations, locks"
	@echo "make conformance  the vectors, one line per area"
	@echo "make bench        the benchmark table"
	@echo "make soak         faults of every kind for MINUTES=90, from SEED=; a table at the end"
	@echo "make schema       EXAMPLES=50 requests that Schemathesis makes for each operation of the API"
	@echo "make test-deps    a browser, kubectl and a C compiler for the tests (Debian's packages; root)"
	@echo "make editor       the console's YAML editor once more, from the versions in tools/editor (Node.js)"
	@echo "make lock         write the requirement files again (UPGRADE=1: newer versions)"
	@echo "make clean        remove .venv and caches; make reset: remove the data too"

up:
	@./bootstrap.sh run
	@exec $(PYTHON) manage.py up

test:
	@./bootstrap.sh dev
	@exec $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

# The other form of the tests (tests/forms.py), and everything at another time.
long: long-tests later

long-tests:
	@./bootstrap.sh dev
	@TEST_FORM=long $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --timeout 1800 $(ARGS)

# Folders whose tests meet rows with times, and a moment about ten years on that is the last second
# of a month, of a 29 February at that. Slow tests send requests at random for a while: not again. Of
# each test that uses the database so many variants run; TEST_VARIANTS is told in tests/distribution.
TIMED = tests/clusterstate tests/controllers tests/worker tests/admin tests/api tests/journeys tests/properties/test_eviction_timers.py
MOMENTS = 2036-02-29T23:59:59Z
VARIANTS ?= 3
later:
	@./bootstrap.sh dev
	@for moment in $(MOMENTS); do echo "at $$moment"; TEST_CLOCK=$$moment TEST_VARIANTS=$(VARIANTS) $(PYTHON) -m pytest \
	  -n $(WORKERS) --dist loadfile -m "not real_clock and not slow" $(TIMED) $(ARGS) || exit 1; done

plans:
	@./bootstrap.sh dev
	@PLANS=$${PLANS:-1000} exec $(PYTHON) -m pytest -n $(WORKERS) --dist load \
	  tests/properties/test_plans_come_true.py $(ARGS)

previews:
	@./bootstrap.sh dev
	@PREVIEWS=$${PREVIEWS:-200} exec $(PYTHON) -m pytest -n $(WORKERS) --dist load \
	  tests/properties/test_previews_come_true.py $(ARGS)

mutants:
	@./bootstrap.sh dev
	@exec $(PYTHON) -m tests.mutants --count $(MUTANTS) $(if $(SEED),--seed $(SEED)) $(ARGS)

fast:
	@./bootstrap.sh dev
	@exec $(PYTHON) -m pytest -m "not db and not slow" $(ARGS)

check:
	@./bootstrap.sh dev
	@exec .ci/check

conformance:
	@./bootstrap.sh dev
	@exec $(PYTHON) -m tests.conformance.runner $(ARGS)

bench:
	@./bootstrap.sh dev
	@exec $(PYTHON) -m tests.perf $(ARGS)

soak:
	@./bootstrap.sh dev
	@exec $(PYTHON) -m tests.faults --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

schema:
	@./bootstrap.sh dev
	@TEST_FORM=long STOWAGE_SCHEMA_EXAMPLES=$(EXAMPLES) exec $(PYTHON) -m pytest --timeout 0 tests/api/test_schema.py $(ARGS)

test-deps:
	@exec .ci/test-deps

# CodeMirror for the console in one file. Needs Node.js and npm; nothing else does but tests/clients.
editor:
	@cd tools/editor && npm ci --no-audit --no-fund && npx esbuild editor.js --bundle --minify --format=esm \
	  --target=es2022 --legal-comments=none --outfile=../../api/static/console/vendor/codemirror-6.min.js
	@sha256sum api/static/console/vendor/codemirror-6.min.js

lock:
	@./bootstrap.sh dev
	@UPGRADE=$(UPGRADE) .ci/lock

clean:
	rm -rf .venv .bootstrap.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

reset:
	@./bootstrap.sh run
	@$(PYTHON) manage.py reset
	@$(MAKE) --no-print-directory clean
