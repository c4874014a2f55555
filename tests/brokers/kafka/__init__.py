"""What is special about Kafka, beside the contract.

harness  connects Kafka to the shared suites, with helpers for the tests here
"""
