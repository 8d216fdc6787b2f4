"""A compiled model beside its float model: how close, how fast, and several in one table."""
