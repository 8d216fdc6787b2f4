"""From what a user has (a model, a file) to a `Program` at level `float`."""

from jq.trace.source import load_model
from jq.trace.trace import trace

__all__ = ["load_model", "trace"]
