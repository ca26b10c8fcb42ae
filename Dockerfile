# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# The caches outlive the build, so that a changed line does not compile the dependencies again.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin ratelimitd \
    && install -D target/release/ratelimitd /out/ratelimitd

FROM debian:bookworm-slim
COPY --from=build /out/ratelimitd /usr/local/bin/ratelimitd
# Whom the system trusts, for rediss:// without a CA file of its own.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# Owned by root: the service reads its settings and rules and writes no file at all.
WORKDIR /ratelimitd
COPY config config
USER 65532:65532
# gRPC, HTTP (/json, /metrics, probes). The admin port 6070 listens on loopback only.
EXPOSE 8081 8080
ENTRYPOINT ["ratelimitd"]
CMD ["serve", "--config", "config/ratelimitd.yaml"]
