"""From what a user has (a model, a file) to a `Program` at level `float`."""

from jq.trace.trace import trace

__all__ = ["trace"]
