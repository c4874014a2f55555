"""The embedded broker: durable topics with lanes in one SQLite file. Where to start: `broker`, then `source`, `writer`.

The event loop decides, one thread writes, a few threads read.

options        what can be configured
volume_check   whether a data directory outlives the pod
broker         the contract's Broker: owns everything below
source         the contract's Source: one group's consumption
range_cursor   the contract's Cursor: the positions of a group that is read by ranges
writer         the thread that writes, in group commits, and `Store`: what can be written in a transaction
catalog        written by the store: topics and lanes
append         written by the store: messages
publish_ids    written by the store: deduplication ids of messages
groups         written by the store: groups, and their cursors in lanes
retention      written by the store: removal of what is old or too much
queries        what is read, and the threads that read
blocks         pure: many records in one row
schema         the database file: creating and opening it
sqlite_errors  SQLite's errors as ours, and rows that are damaged
folder         the data directory and its lock
disk_space     whether the disk is full, and the reserve that is kept for that case
"""

from sidecar.brokers.local.broker import LocalBroker
from sidecar.brokers.local.options import LocalOptions

__all__ = ["LocalBroker", "LocalOptions"]
