"""The Python client of Offramp."""
