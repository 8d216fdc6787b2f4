"""Dangerous work in a process that may crash, and the limits that it has."""
