"""Chaos: real sidecars, workers and brokers under a load, and faults that a seed has planned.

    make chaos                                  ten minutes, all brokers in turn
    make chaos ROUNDS=1000 BROKER=kafka         a long one
    make chaos SEED=7 ROUND=12 BROKER=kafka     one round again

plan       pure: a seed and a number make a round: who takes part, and which faults when
acts       what faults there are
campaign   one round after the other, and what is shown of them
round      plays a plan: starts the cast, does the faults, waits until all is settled
cast       the sidecars of a round with their workers, and what is done to them
stages     the brokers as a round needs them: local, Kafka, Pulsar
publisher  the process that publishes
proxy      the process that stands in a connection, to cut and delay it
clocks     sidecars whose time of day jumps
diary      what the harness did to whom, and when
history    a round as it is on the disk when it is over
upsets     pure: what the diary says was done to whom, and for how long
checker    pure: does that history keep the promises? It shares no code with the sidecar
seen       pure: a history, looked up the ways that the rules need
reasons    pure: which upsets explain that a record comes again
rules      pure: what the checker decides

Every process writes down what it does, before it tells others of it, into a file of its own; the broker is asked what
it has by plain clients. That is the history, and the checker believes nothing else.
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))
