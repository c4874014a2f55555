"""What is special about Pulsar, beside the contract.

harness  connects Pulsar to the shared suites, with helpers for the tests here
"""
