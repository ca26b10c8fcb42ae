# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# The cache mounts keep compiled dependencies between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin ratelimitd \
    && install -D target/release/ratelimitd /out/ratelimitd

FROM debian:bookworm-slim
COPY --from=build /out/ratelimitd /usr/local/bin/ratelimitd
# The system's certificate authorities, for rediss:// without `ca_file`.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# The files belong to root: the service only reads settings and rules, and writes no file.
WORKDIR /ratelimitd
COPY config config
USER 65532:65532
# gRPC, and HTTP (/json, /metrics, probes). The admin port 6070 listens on loopback only.
EXPOSE 8081 8080
ENTRYPOINT ["ratelimitd"]
CMD ["serve", "--config", "config/ratelimitd.yaml"]
