# Everyday commands. `make help` lists them.

CARGO ?= cargo
# Arguments of `make demo`, for example DEMO_ARGS=--once
DEMO_ARGS ?=
# Seeds of `make sim`: a count, tried from 0 on
SEEDS ?= 1000
# Seconds that `make fuzz` spends on each target, and which targets
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= decode_json decode_msgpack hub_operations round_trip websocket
# Calls of the canary pair before and under each attack of `make hostile`; its core and that of the attackers, nothing
# for any; the niceness of the attackers
HOSTILE_CALLS ?= 20000
HOSTILE_CORES ?= 0,1
HOSTILE_NICE ?= 10

# What is not on the machine is left out, with a word: none of it is needed to work on the hub.
have = $(shell command -v $(1) 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test tools rules console console-test api sdk-python sdk-typescript pairs fmt fmt-check lint doc build unit deny sim fuzz hostile

help: ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: console ## A hub with sample agents at work (DEMO_ARGS=--once ends by itself)
	$(CARGO) build --locked --bin agent-reach
	target/debug/agent-reach demo $(DEMO_ARGS)

test: tools rules console fmt-check lint doc build unit api sdk-python sdk-typescript console-test pairs deny ## Everything that has to be green before a merge

# Prometheus' own checker, for the rules and boards in dashboards/. Debian has it in a package, which is unpacked here and
# not installed: its service would be started.
TOOLS = $(CURDIR)/target/tools
export PROMTOOL ?= $(or $(call have,promtool),$(TOOLS)/usr/bin/promtool)
# A headless browser, for what runs in pages. tests/browser/chromium.mjs of the TypeScript SDK looks in the same places.
export CHROMIUM ?= $(or $(call have,chromium),$(call have,chromium-headless-shell),$(call have,chromium-browser),\
	$(call have,google-chrome),$(TOOLS)/usr/bin/chromium-headless-shell)
# `required`: what is not there fails, as in continuous integration.
export AGENT_REACH_TOOLS ?=
left_out = echo "$(1)"; test "$(AGENT_REACH_TOOLS)" != required

tools: ## What tests use where it is there: promtool and Chromium, from Debian's packages
	@test -x "$(PROMTOOL)" || { \
		mkdir -p $(TOOLS) && cd $(TOOLS) && \
		{ apt-get --quiet=2 download prometheus || { apt-get --quiet=2 update && apt-get --quiet=2 download prometheus; }; } && \
		dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb; \
	} || { $(call left_out,promtool could not be had from apt: rules and boards are looked at without it); }
	@test -x "$(CHROMIUM)" || sdk/typescript/tests/browser/unpack-chromium.sh $(TOOLS) || \
		{ $(call left_out,Chromium could not be had from apt: nothing is tried in a browser); }

rules: ## The rules of dashboards/prometheus, and every alert on made data
	@if test -x "$(PROMTOOL)"; then \
		cd dashboards/prometheus && "$(PROMTOOL)" check rules recording.yml alerts.yml && \
		"$(PROMTOOL)" test rules alerts.test.yml; \
	else $(call left_out,promtool is not installed: alerts were not tried (make tools)); fi

fmt: ## Format the code
	$(CARGO) fmt --all

fmt-check:
	$(CARGO) fmt --all --check

lint: ## Clippy, with warnings as errors
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

doc: ## Rustdoc, with warnings as errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

build: console
	$(CARGO) build --locked --workspace --all-targets

unit: ## All tests: units, black box, documentation
ifneq ($(call have,cargo-nextest),)
	$(CARGO) nextest run --locked --workspace
	$(CARGO) test --locked --workspace --doc
else
	$(CARGO) test --locked --workspace
endif

# Both speak to the debug build of the hub.
sdk-python: build ## The Python SDK: linters, types, tests, its package in a clean environment
ifneq ($(call have,python3),)
	$(MAKE) --directory sdk/python test
else
	@$(call left_out,python3 is not installed: the Python SDK was not tested)
endif

sdk-typescript: build ## The TypeScript SDK: compiler, linter, tests, its package and bundle
ifneq ($(call have,npm),)
	cd sdk/typescript && npm ci --no-audit --no-fund && AGENT_REACH_BIN=$(CURDIR)/target/debug/agent-reach npm test
else
	@$(call left_out,npm is not installed: the TypeScript SDK was not tested)
endif

# AGENT_REACH_BIN names another build of the hub, for those who do not want to wait for this one.
pairs: build ## Every SDK as caller and as provider of every other one, on the release build of the hub
ifndef AGENT_REACH_BIN
	$(CARGO) build --locked --release --bin agent-reach
endif
ifneq ($(call have,python3),)
	$(MAKE) --directory sdk/python env
else
	@$(call left_out,python3 is not installed: pairs with Python were not run)
endif
ifneq ($(call have,npm),)
	cd sdk/typescript && { test -d node_modules || npm ci --no-audit --no-fund; } && npx --no-install tsc -p tsconfig.json
else
	@$(call left_out,npm is not installed: pairs with TypeScript were not run)
endif
	AGENT_REACH_BIN=$(or $(AGENT_REACH_BIN),$(CURDIR)/target/release/agent-reach) \
		PAIRS_PYTHON=$(and $(call have,python3),$(CURDIR)/target/python-sdk/bin/python) \
		PAIRS_NODE=$(and $(call have,npm),$(call have,node)) \
		$(CARGO) test --locked --workspace --test sdk_pairs -- --nocapture

# Requests made from /openapi.json, good and bad, and what comes back held against it.
API_SECONDS ?= 60
API_VENV := $(CURDIR)/target/api

api: build ## The HTTP API against its own description, by schemathesis (API_SECONDS=60, with a token and with a session each)
ifneq ($(call have,python3),)
	@test -x $(API_VENV)/bin/schemathesis || { python3 -m venv $(API_VENV) && \
		$(API_VENV)/bin/pip install --quiet --disable-pip-version-check schemathesis==4.32.5; }
	python3 tests/api/run.py target/debug/agent-reach $(API_VENV)/bin/schemathesis $(API_SECONDS)
else
	@$(call left_out,python3 is not installed: the HTTP API was not held against its description)
endif

# What the hub's build takes into the binary. Made again when something that it is made of is newer.
CONSOLE_SOURCES = $(shell find console/src sdk/typescript/src -type f) $(addprefix console/,index.html package-lock.json vite.config.ts)

console/dist/index.html: $(CONSOLE_SOURCES)
	cd console && npm ci --no-audit --no-fund && npm run build

console: $(if $(call have,npm),console/dist/index.html) ## The browser console, for the hub to have inside
	@$(if $(call have,npm),true,echo "npm is not installed: the hub is built without its console")

console-test: build ## The console: compiler, linter, units, and every page in a browser
ifneq ($(call have,npm),)
	cd console && npm test
	@if test -x "$(CHROMIUM)"; then cd console && AGENT_REACH_BIN=$(CURDIR)/target/debug/agent-reach npm run test:browser; \
	else $(call left_out,Chromium is not installed: the console was not tried in a browser (make tools)); fi
else
	@$(call left_out,npm is not installed: the console was not tested)
endif

deny: ## Licences, sources and banned crates of the dependencies
ifneq ($(call have,cargo-deny),)
	$(CARGO) deny --log-level error check bans licenses sources
else
	@echo "cargo-deny is not installed: dependencies were not checked (cargo install --locked cargo-deny)"
endif

sim: ## The simulation with many seeds (SEEDS=1000)
	SIM_SEEDS=$(SEEDS) $(CARGO) test --locked --release -p agent-reach-core --test simulation -- --nocapture

# The compiler of everyday use will do, and no memory checker: no code here is unsafe. What is found goes to
# fuzz/artifacts, what is new to fuzz/corpus; fuzz/README.md says how both are kept small.
fuzz: ## Fuzzing with coverage (FUZZ_SECONDS=60 for each of FUZZ_TARGETS)
ifneq ($(call have,cargo-fuzz),)
	$(CARGO) run --quiet --manifest-path fuzz/Cargo.toml --example seeds -- fuzz/target/seeds
	for target in $(FUZZ_TARGETS); do \
		RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --sanitizer none $$target fuzz/corpus/$$target fuzz/target/seeds/$$target \
			-- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 || exit 1; \
	done
else
	@echo "cargo-fuzz is not installed: cargo install --locked cargo-fuzz (it needs a C++ compiler; no nightly Rust)"
	@exit 1
endif

# The canary has a process and a core of its own. The attackers get what the hub leaves of another: real ones burn their
# own machines' and not the hub's (docs/performance.md).
HOSTILE_TABLE = $(CURDIR)/target/hostile.md

hostile: ## The attacks of tests/hostile_*.rs on the release build: what they cost an unrelated pair of agents
	$(CARGO) build --locked --release --bin agent-reach --bin loadtest --workspace
	@echo '| attack | quiet p50 / p99, us | attacked p50 / p99, us | ratio of p50 / p99 | longest, us | hub, cores: connections + rest | MiB before / at most / after | descriptors before / after |' >$(HOSTILE_TABLE)
	@echo '| --- | --- | --- | --- | --- | --- | --- | --- |' >>$(HOSTILE_TABLE)
	AGENT_REACH_BIN=$(CURDIR)/target/release/agent-reach HOSTILE_CANARY=$(CURDIR)/target/release/loadtest \
		HOSTILE_CALLS=$(HOSTILE_CALLS) HOSTILE_CORES=$(HOSTILE_CORES) HOSTILE_NICE=$(HOSTILE_NICE) \
		HOSTILE_TABLE=$(HOSTILE_TABLE) \
		$(CARGO) test --locked --test 'hostile_[fhp]*' -- --nocapture --test-threads=1
	@cat $(HOSTILE_TABLE)

# The suite runs on Python 2.7 and on nothing newer. It is installed into a folder of its own, with all that it needs.
# AUTOBAHN_CASES='1.* 7.1.1' runs a part of it.
PYTHON2 ?= $(shell for python in python2.7 python2 $(HOME)/.pyenv/versions/2.7.*/bin/python2.7; do \
	$$python -m pip --version >/dev/null 2>&1 && echo $$python && break; done)
AUTOBAHN = $(CURDIR)/target/autobahn-venv
AUTOBAHN_CASES ?=

.PHONY: autobahn
autobahn: $(AUTOBAHN)/bin/wstest ## The Autobahn|Testsuite against the WebSockets of the hub (docs/websocket.md)
	PYTHONUSERBASE=$(AUTOBAHN) PYTHONWARNINGS=ignore \
		$(CARGO) run --locked --example autobahn -- $< target/autobahn $(AUTOBAHN_CASES)

$(AUTOBAHN)/bin/wstest:
	@test -n "$(PYTHON2)" || { echo "the suite needs Python 2.7 with pip: make autobahn PYTHON2=PATH"; exit 1; }
	PYTHONUSERBASE=$(AUTOBAHN) $(PYTHON2) -m pip install --quiet --user --no-warn-script-location \
		--disable-pip-version-check autobahntestsuite==0.8.2

.PHONY: bench
bench: ## Instructions that each envelope costs, counted by callgrind
ifneq ($(call have,valgrind),)
	$(CARGO) bench --locked -p agent-reach-loadtest --bench instructions
else
	@echo "valgrind is not installed, and it does the counting (Debian: apt-get install valgrind)"
	@exit 1
endif
