"""Fuzz: sends a real sidecar what no client should send. It has to refuse that clearly, go on, and disturb no client.

    make fuzz                 two minutes
    make fuzz SECONDS=3600 SEED=7

garbage         pure: bytes for a socket that speaks HTTP/2: noise, frames cut short, headers without end, bad messages
http2           pure: HTTP/2 and gRPC as bytes
messages        pure: valid messages of the protocol with values of all sorts
responses       pure: what comes back on a bare socket, as far as HTTP/2 and gRPC tell
attacks         send them: on a socket, by unary calls, on the Consume stream
control_client  a client that behaves, through the same sidecar, all the while
campaign        attacks for so many seconds, and what came of them

Other things that are read are fuzzed where their tests are, by Hypothesis: configuration files in
`tests/unit/config/test_fuzz.py`, Kafka's commit metadata in
`tests/unit/brokers/kafka/test_commit_metadata.py`; a damaged database file in `test_database` here. `make fuzz` runs
those too, with OFFRAMP_TEST_LONG=1 for longer.
"""
