"""The rules of ops, found by being defined: one op, or family, is one file."""
