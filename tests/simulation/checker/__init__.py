"""Checks that the promises hold, on everything that passes between the sidecar, the broker and the workers.

checker      the whole: lanes, commits, memory; built on the next three
deliveries   batches that go to workers
settlements  results of settlements, and what follows from them
side_topics  parked records and dead letters
progress     that whoever can be served is served, and what is settled is committed
isolation    how many calls it takes to find poison
state        what the checker tracks
promises     the names of what can be broken
"""
