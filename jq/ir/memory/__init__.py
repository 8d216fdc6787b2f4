"""Sharing of memory between values, and the options by which compilers are told of it."""
