# syntax=docker/dockerfile:1

# Where the binary comes from. compiled: it is compiled here. prebuilt: `make image` has compiled it, for each platform.
ARG BINARY=compiled

# Versions, not floating tags; docs/supply-chain.md says how they are renewed.
FROM rust:1.95.0-slim-bookworm AS compiled
RUN apt-get update && apt-get install -y --no-install-recommends musl-tools \
    && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
# The cache mounts keep compiled dependencies between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(uname -m)-unknown-linux-musl" \
    && CC=musl-gcc cargo build --profile dist --locked --target "$target" --bin ratelimitd \
    && scripts/image-root /out "target/$target/dist/ratelimitd"

FROM scratch AS prebuilt
ARG TARGETARCH
COPY target/dist/image/$TARGETARCH /out

FROM $BINARY AS binary

# The binary is static: the image has no C library, no shell and no package that an advisory could be about.
FROM scratch
# All files belong to root: the service only reads settings and rules. It writes one file, a token in /dev/shm.
COPY --from=binary /out /
ENV PATH=/usr/local/bin:/bin
WORKDIR /ratelimitd
USER 65532:65532
# gRPC, and HTTP (/json, /metrics, probes). The admin port 6070 listens on loopback only.
EXPOSE 8081 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["ratelimitd", "health", "--config", "config/ratelimitd.yaml"]
ENTRYPOINT ["ratelimitd"]
CMD ["serve", "--config", "config/ratelimitd.yaml"]
