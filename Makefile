# fivegates: the commands a person types. The C library itself is built by
# meson, the Python package by setuptools; both read core/SOURCES.
PYTHON ?= python3
VENV := .venv
BUILD := build/meson
LIB := build/lib
export PYTHON

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

# Its provider is on loopback, which no proxy of the environment can reach.
comma := ,
demo: export NO_PROXY := $(if $(NO_PROXY),$(NO_PROXY)$(comma))127.0.0.1,localhost
demo: export no_proxy := $(if $(no_proxy),$(no_proxy)$(comma)127.0.0.1$(comma)localhost,$(NO_PROXY))
demo: ## install what is missing, build, and compare plain retries with fivegates
	@.ci/setup demo
	@$(VENV)/bin/python examples/demo/demo.py --keep build/demo $(ARGS)

test: ## install what is missing and run every test
	@.ci/setup test
	@.ci/test

build: ## the C library, its tests and benchmarks, in build/meson
	@.ci/setup build
	@.ci/configure $(BUILD) -Dwerror=true
	@meson compile -C $(BUILD) --ninja-args=-k0

lib: ## the C libraries alone, in build/lib: what a gateway needs (meson install -C build/lib)
	@.ci/setup lib
	@.ci/configure $(LIB) -Dtests=false -Dcurl=disabled -Dbuildtype=release -Dlibdir=lib
	@meson compile -C $(LIB)

unit: build ## the C tests alone, from build/meson
	@meson test -C $(BUILD) --print-errorlogs

wheel: ## an abi3 wheel with cJSON bundled, in dist/
	@.ci/setup wheel
	@rm -rf build/wheel && mkdir -p build/wheel dist
	@$(VENV)/bin/python -m pip wheel -q --no-deps --no-build-isolation -w build/wheel .
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/auditwheel repair --strip -w dist build/wheel/*.whl
	@ls -l dist/*.whl

referee: ## what each way of retrying does after 31 faults, as a table (a minute)
	@.ci/setup test
	@cd tests && ../$(VENV)/bin/python -m referee $(or $(ARGS),--markdown)

bench: ## DESIGN 15 as measured here, and other libraries beside it (ARGS="--runs 9")
	@.ci/setup test
	@$(VENV)/bin/python benchmarks/run.py $(ARGS)

fuzz: ## every libFuzzer target for SECONDS each (default 60)
	@.ci/setup test
	@.ci/fuzz $(or $(SECONDS),60)

format: ## clang-format over the C sources
	@find core bindings tests benchmarks -name '*.[ch]' -print0 | xargs -0 -r clang-format -i

clean: ## remove build results (the virtual environment stays)
	rm -rf build dist bindings/python/*.egg-info

.PHONY: help demo test build lib unit wheel referee bench fuzz format clean
.DEFAULT_GOAL := help
