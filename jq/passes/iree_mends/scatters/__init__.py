"""Scatters of every kind, as those that IREE gets right."""
