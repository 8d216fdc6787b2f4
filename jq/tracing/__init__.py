"""From what a user has (a model, a file) to a `Program` at level `float`."""

from jq.tracing.entry import trace
from jq.tracing.source import load_model

__all__ = ["load_model", "trace"]
