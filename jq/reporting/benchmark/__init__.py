"""Latency and memory of a compiled program, measured in a process of its own, which imports this
package, and must not import JAX with it."""
