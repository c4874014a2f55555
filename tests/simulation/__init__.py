"""Random histories of a whole subscription in virtual time: the shipped code between a simulated broker and workers.

    python -m tests.simulation --histories 20000     many, on all cores
    python -m tests.simulation --seed 4711           one again

history               one history, from a seed to its result
plan                  the random settings of a history
actions               what happens in it
checked_subscription  the subscription under test, which reports every call to the checker
checker               a package: what must hold
neighbour             another subscription of the same sidecar
broker                a package: the simulated broker
workers               a package: the simulated workers
virtual_time          the event loop and the clock
world                 what all parts of a history share: random numbers, time, the trace
campaign              many histories, and what they exercised
coverage              what they must exercise
mutations             mistakes in the shipped code, each of which must be found
load                  beside the histories: a steady load, whose rate and latency are measured
"""
