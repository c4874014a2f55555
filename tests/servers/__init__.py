"""Installs and runs real servers for the tests, and for developers.

    python -m tests.servers install       fetch what the tests need, once
    python -m tests.servers kafka         run a Kafka until Ctrl-C, and say where it listens
    python -m tests.servers pulsar        the same with a Pulsar

`maven` fetches jars into a folder that outlives the tree, `process` runs a server as a process, `server` is what all
of them have in common, `kafka` knows Kafka, `pulsar` knows Pulsar, `sharing` gives one server to all the workers of a
test run, and `fixtures` are what tests ask for.
"""
