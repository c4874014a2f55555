"""Figures that anyone can reproduce: `make bench`. No test judges them.

rows         the plain types: benchmarks, rows, goals, figures
suites/      the benchmarks; each module measures one thing
environment  the servers, filled topics and sidecars that the benchmarks of a run share
sidecar      a sidecar process and what it costs
programs/    the other processes that are started: consumers, producers, a service behind a handler
runner       takes turns
progress     shows how far the run is
machine      the machine, its versions and its load
results      the file of results
report/      the table, the picture and the pages
"""
