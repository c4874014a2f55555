"""Installs and runs real servers for the tests, and for developers.

    python -m tests.servers install       fetch what the tests need, once
    python -m tests.servers kafka         run a Kafka until Ctrl-C, and say where it listens
    python -m tests.servers pulsar        the same with a Pulsar
    python -m tests.servers nats          the same with a NATS
    python -m tests.servers redis         the same with a Redis

server        what all servers have in common
kafka         Kafka
kafka_groups  a consumer group of Kafka, seen and disturbed from outside
pulsar        Pulsar
nats          NATS
redis         Redis and Valkey
process       runs a server as a process
maven         fetches jars into a folder that outlives the tree
certificates  certificates for servers that ask for TLS
sharing       gives one server to all the workers of a test run
fixtures      the fixtures that tests ask for
tools         programs that a test needs, and what happens if they are missing
"""
