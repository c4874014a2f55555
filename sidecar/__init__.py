"""Offramp: pulls from a message broker and streams batches to a local app, which acks or nacks them.

A package imports only from those above it in this table; `make check` verifies it.

| package | what it is for |
|---|---|
| `model` | the terms of Offramp as plain types: records, errors, sets of positions, wire format |
| `settings` | every setting with its documentation |
| `observability` | logs, counters, metrics, status, tracing |
| `core` | the bookkeeping of a subscription. Pure |
| `brokers` | the contract of a broker, and one package for each |
| `config` | reads settings from YAML and the environment |
| `subscription` | subscriptions with mode `leases`: fetch, deliver, settle, commit |
| `ranges` | subscriptions with mode `ranges`, for readers that keep their own checkpoint (Spark) |
| `push` | calls apps that are servers: a worker within the sidecar |
| `server` | the process: gRPC, HTTP, access control, the status page, start and drain |
| `cli` | the `offramp` command |
"""
