"""Suites of many small programs: each is compiled, run, and compared with JAX on XLA."""
