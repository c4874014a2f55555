"""What is special about the embedded broker, beside the contract.

harness         connects it to the shared suites, with helpers for the tests here
killed_process  the process that publishes and consumes until a test kills it
"""
