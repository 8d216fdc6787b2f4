"""From what a user has (a model, a file) to a `Program` at level `float`."""

from jq.frontends.tracing.entry import trace
from jq.frontends.tracing.source import load_model
