"""What is special about Redis, beside the contract.

harness  connects Redis to the shared suites, with helpers for the tests here
"""
