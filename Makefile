# What there is to do here; `make` alone lists it. Everything these targets make stays under target/
# (or CARGO_TARGET_DIR), except `generate` and `install`, whose purpose is to write elsewhere.
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
PREFIX ?= /usr/local
# Where `generate` writes completions/ and man/; .ci/run compares a second set with the checked-in one.
OUT ?= .
N ?= 200

BINARY = $(TARGET)/release/redlock-run
BIN_DIR = $(DESTDIR)$(PREFIX)/bin
BASH_DIR = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_DIR = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH_DIR = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
MAN_DIR = $(DESTDIR)$(PREFIX)/share/man/man1

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

.PHONY: build
build: compiler ## build the optimised binary, target/release/redlock-run
	cargo build --locked --release

.PHONY: test
test: compiler ## run all tests, each against a private redis-server (fetched when there is none)
	@mkdir -p "$(TARGET)/tmp"
	server=$$(scripts/get-redis) && \
	REDIS_SERVER="$$server" TMPDIR="$(TARGET)/tmp" cargo test --locked

.PHONY: demo
demo: compiler ## show the main job on a private Redis, in under a minute after the build
	@scripts/demo

.PHONY: bench
bench: compiler ## compare with flock(1), a C floor and the redis-cli idiom; ROUNDS=… for more or fewer
	server=$$(scripts/get-redis) && \
	REDIS_SERVER="$$server" cargo bench --locked --bench bench

.PHONY: compare
compare: compiler ## the behaviour of flock, timeout, env and redlock-run side by side
	@cargo build --locked --quiet
	@scripts/compare

.PHONY: trials
trials: compiler ## N=… random faults (kill -9, stops, dead networks) against running jobs; SEED, TRIAL, FAULT, JOBS
	@mkdir -p "$(TARGET)/tmp"
	@echo "under test: $(or $(REDLOCK_RUN_BIN),$(BINARY)) (building it takes some minutes the first time)"
	server=$$(scripts/get-redis) && \
	REDIS_SERVER="$$server" TMPDIR="$(TARGET)/tmp" N="$(N)" cargo test --locked --release --test trials

.PHONY: check
check: compiler ## formatting, lints and documentation, warnings denied
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --locked --no-deps
	@if command -v shellcheck >/dev/null; then set -x; shellcheck -x .ci/run $$(grep -lE '^#!/bin/(ba)?sh' scripts/*); fi

.PHONY: generate
generate: compiler ## write completions/ and man/ anew, from the definition of the command line
	cargo build --locked
	mkdir -p "$(OUT)/completions" "$(OUT)/man"
	"$(TARGET)/debug/redlock-run" completions bash >"$(OUT)/completions/redlock-run.bash"
	"$(TARGET)/debug/redlock-run" completions zsh >"$(OUT)/completions/_redlock-run"
	"$(TARGET)/debug/redlock-run" completions fish >"$(OUT)/completions/redlock-run.fish"
	"$(TARGET)/debug/redlock-run" man >"$(OUT)/man/redlock-run.1"

# `make build && sudo make install`: root often has no cargo, so nothing is built here.
.PHONY: install
install: ## install what `make build` built, man page and completions; PREFIX (/usr/local), DESTDIR
	@test -x "$(BINARY)" || { echo "make: nothing is built yet; type: make build" >&2; exit 1; }
	install -d "$(BIN_DIR)" "$(MAN_DIR)" "$(BASH_DIR)" "$(ZSH_DIR)" "$(FISH_DIR)"
	install -m 755 "$(BINARY)" "$(BIN_DIR)/redlock-run"
	install -m 644 man/redlock-run.1 "$(MAN_DIR)/redlock-run.1"
	install -m 644 completions/redlock-run.bash "$(BASH_DIR)/redlock-run"
	install -m 644 completions/_redlock-run "$(ZSH_DIR)/_redlock-run"
	install -m 644 completions/redlock-run.fish "$(FISH_DIR)/redlock-run.fish"

.PHONY: uninstall
uninstall: ## remove what `make install` installed
	rm -f "$(BIN_DIR)/redlock-run" "$(MAN_DIR)/redlock-run.1" "$(BASH_DIR)/redlock-run" \
		"$(ZSH_DIR)/_redlock-run" "$(FISH_DIR)/redlock-run.fish"

.PHONY: compiler
compiler:
	@scripts/get-cc
