//! Checks what is in `deploy/` and `examples/` with the programs that read it: Helm, Kustomize, promtool, Prometheus,
//! Envoy, nginx, Caddy, HAProxy, Traefik, Go, Node and Python; and spans with the receiver of the OpenTelemetry
//! Collector. `make check-deploy` installs the missing programs and runs these tests; `make test` does not. The tests
//! of Traefik, which is built first, are `make check-traefik`.

mod alertmanager;
mod api_server;
mod callers;
mod envoy;
mod kubernetes;
mod metrics;
mod pod;
mod proxies;
mod rendered;
mod rolling;
mod saas;
mod tools;
mod traces;
mod workflows;

#[path = "../it/support/mod.rs"]
#[expect(dead_code, reason = "shared with the integration tests, which use all of it")]
mod support;
