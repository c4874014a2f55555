"""The adapter contract, method by method. `tests.brokers.conformance` puts it together."""
