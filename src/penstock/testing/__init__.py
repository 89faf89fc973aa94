"""Shipped for tests: the contract every backend keeps, a clock that is set by hand."""
