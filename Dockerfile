# syntax=docker/dockerfile:1

FROM node:22-slim AS console
WORKDIR /src/console
COPY sdk/typescript ../sdk/typescript
COPY console .
RUN npm ci --no-audit --no-fund && npm run build

FROM rust:1-slim-bookworm AS build
# The allocator is built by make. Versions are not pinned: Debian keeps none but the newest, and that is the patched one.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
COPY --from=console /src/console/dist console/dist
# The caches live outside of the layers, so the binary is copied out of one in the same step.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --bin agent-reach \
    && install -D target/release/agent-reach /out/agent-reach

# Slim and not distroless: its bash is the health client below, so no other program has to come along.
FROM debian:bookworm-slim
# Webhooks are checked against the usual authorities.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 agent-reach \
    && useradd --uid 10001 --gid 10001 --shell /usr/sbin/nologin \
        --home-dir /var/lib/agent-reach --create-home --skel /nonexistent agent-reach
COPY --from=build /out/agent-reach /usr/local/bin/agent-reach
USER 10001:10001
WORKDIR /var/lib/agent-reach

# Agents, HTTP (console, API, health), metrics.
EXPOSE 7443 7080 9464

# Asks the [http] listener as the example configuration has it: plain, on loopback, port 7080. With TLS or
# another port there, give --health-cmd, or let the orchestrator probe /readyz with the header
# "Host: localhost" (other hosts get 421).
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7080 && printf 'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]

# SIGTERM, which Docker sends, drains: give it longer than agents.drain_ms, with docker stop --time 15.
ENTRYPOINT ["agent-reach"]
CMD ["serve", "--config", "/etc/agent-reach/agent-reach.toml"]
