"""Real sidecars and workers as processes on a real NATS, with real faults.

fleet     sidecars of one group, each with workers
load      a plain publisher
snapshot  what NATS has: records, dead letters, and what the group has acked, read without any code of the sidecar
"""
