"""Generated from proto/offramp/v1 by `make proto`."""
