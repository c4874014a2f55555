"""The embedded broker: durable topics with lanes in one SQLite file.

options      what can be set
broker       the contract's Broker: owns all the others
source       the contract's Source: one group's consumption
cursor       the contract's Cursor: a group that is read by ranges
views        lanes and groups as the event loop knows them
writer       group commit: the one thread that writes
store        what it writes, in a transaction: catalog (topics, lanes), appending, cursors, retention
readers      the threads that read, and `queries`, what they read
blocks       pure: many records in one row
schema       the file: making, opening
faults       what SQLite complains of, and what can be done about it
folder       the data directory and its lock; `place`, whether it outlives the pod
reserve      disk space for the day when the disk is full; `room`, whether it is
"""

from sidecar.brokers.local.broker import LocalBroker
from sidecar.brokers.local.options import LocalOptions
from sidecar.brokers.local.views import GroupInfo

__all__ = ["GroupInfo", "LocalBroker", "LocalOptions"]
