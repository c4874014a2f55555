"""Chaos: real sidecars, workers and brokers under a load, and faults that a seed has planned.

    make chaos                                  ten minutes, all brokers in turn
    make chaos ROUNDS=1000 BROKER=kafka         a long one
    make chaos SEED=7 ROUND=12 BROKER=kafka     one round again

plan           pure: a seed and a number make a round: who takes part, and which faults when
faults         the kinds of faults
campaign       plays one round after another and prints the results
round          plays a plan: starts the sidecars, injects the faults, waits until all is settled
sidecars       the sidecars of a round with their workers, and the faults that hit them
brokers/       the brokers of a round: local, Kafka, Pulsar, Redis
publisher      the process that publishes
proxy          the process that stands in a connection, to cut and delay it
proxy_process  starts that process and gives it orders
clocks         sidecars whose time of day jumps
event_log      what the harness did to which process, and when
checker/       pure: does the history of a round keep the promises? It shares no code with the sidecar

Every process writes down what it does, before it tells others of it, into a file of its own; the broker is asked what
it has by plain clients. That is the history, and the checker believes nothing else.
"""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))
