"""The Java client: its own tests, its examples, and its build for the scenarios."""
