"""Real sidecars and workers as processes on a real Kafka, with real faults.

fleet     sidecars of one group, each with workers
load      a plain producer
snapshot  what Kafka has: records, dead letters, and how far the group is, read without any code of the sidecar
"""
