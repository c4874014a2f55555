"""The bookkeeping of a subscription with mode `leases`. Pure: no tasks, no locks, no clock, no I/O; `now` is passed in.

A module or package imports only from those above it in this table; `make check` verifies it.

| module or package | what it is for |
|---|---|
| `state` | the state of lanes and leases |
| `failures` | what happens to records that were not acked |
| `scheduling` | which records are delivered next, and how many at a time |
| `tracker` | where each record is, and every move from one place to another |
"""
