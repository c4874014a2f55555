"""Figures that anyone can reproduce: `make bench`. Never part of a test.

`catalogue` lists the benchmarks; each file that it names measures one thing (throughput, latency, dispatch, ...).
`rows` has the words (row, goal, benchmark), `runner` takes turns, `stage` keeps the servers and filled topics of a
run, `sidecar` and `programs` are the processes that are measured, `figures` and `machine` are what comes of it, and
`table`, `results`, `picture` and `pages` show it.
"""
