"""What is special about NATS, beside the contract.

harness  connects NATS to the shared suites, with helpers for the tests here
"""
