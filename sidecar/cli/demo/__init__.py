"""What `offramp demo` runs: a real sidecar, workers and publishers in a temporary folder, failures, and an audit.

runner         the demo from start to end
plan, orders   the numbers of the demo, and the records it publishes
worker         the worker process
publisher      the publisher process
journal        what these two write down, and what all journals together say
processes      starts, watches, kills and stops processes
script         what happens when: a worker is killed, a lane is slow, orders are parked
snapshot       the state of the sidecar at a moment
display        what is shown of it, on a terminal or as lines
broker_state   what the broker has stored at the end
audit          compares that with the journals; the verdict

The container image leaves this package out; nothing but `commands.demo` imports it.
"""
