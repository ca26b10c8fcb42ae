# syntax=docker/dockerfile:1

# Versions, not floating tags; docs/supply-chain.md says how they are renewed.
FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
COPY . .
# The cache mounts keep compiled dependencies between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin ratelimitd \
    && install -D target/release/ratelimitd /out/ratelimitd

FROM debian:12.12-slim
COPY --from=build /out/ratelimitd /usr/local/bin/ratelimitd
# Under these names it is the programs of envoyproxy/ratelimit, see docs/migrating.md.
RUN for name in ratelimit ratelimit_config_check; do ln -s /usr/local/bin/ratelimitd /bin/$name; done
# The system's certificate authorities, for rediss:// without `ca_file`.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# The files belong to root: the service only reads settings and rules, and writes no file.
WORKDIR /ratelimitd
COPY config/ratelimitd.yaml config/ratelimitd.yaml
# Not at the default rules.path, config/rules: a service whose own rules were forgotten must not become ready with these.
COPY config/rules examples/rules
USER 65532:65532
# gRPC, and HTTP (/json, /metrics, probes). The admin port 6070 listens on loopback only.
EXPOSE 8081 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["ratelimitd", "health", "--config", "config/ratelimitd.yaml"]
ENTRYPOINT ["ratelimitd"]
CMD ["serve", "--config", "config/ratelimitd.yaml"]
