# syntax=docker/dockerfile:1

# Where the binaries come from. compiled: they are compiled here. prebuilt: `make image` has compiled them, for each
# platform.
ARG BINARY=compiled

# Base images are pinned by version. For a pin by digest, append the digest that this prints:
#   docker buildx imagetools inspect rust:1.95.0-slim-bookworm
FROM rust:1.95.0-slim-bookworm AS toolchain
RUN apt-get update && apt-get install -y --no-install-recommends musl-tools \
    && rustup target add "$(uname -m)-unknown-linux-musl"
ENV CC=musl-gcc
WORKDIR /src

# The manifests, with an empty crate for each of ours. They change only when a Cargo.toml or Cargo.lock does.
FROM toolchain AS manifests
COPY . .
RUN find . \( -name Cargo.toml -o -name Cargo.lock \) -exec install -D {} /manifests/{} \; \
    && cd /manifests \
    && for crate in . crates/* tests/contract tests/stories; do mkdir -p "$crate/src" && touch "$crate/src/lib.rs"; done \
    && mkdir src/ctl && echo 'fn main() {}' | tee src/ctl/main.rs >src/main.rs

FROM toolchain AS compiled
# The dependencies, in a layer of their own: a change of our sources does not compile them again. Cargo compares times of
# files, so without `rm` it may take the empty crates for ours.
COPY --from=manifests /manifests .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    target="$(uname -m)-unknown-linux-musl" \
    && cargo build --profile dist --locked --target "$target" --bins \
    && rm -rf target/dist/.fingerprint/ratelimitd* "target/$target"/dist/.fingerprint/ratelimitd*
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    target="$(uname -m)-unknown-linux-musl" \
    && cargo build --profile dist --locked --target "$target" --bins \
    && scripts/image-root /out "target/$target/dist"

FROM scratch AS prebuilt
ARG TARGETARCH
COPY target/dist/image/$TARGETARCH /out

FROM $BINARY AS binary

# The binaries are static: the image has no C library, no shell and no package that an advisory could be about.
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
