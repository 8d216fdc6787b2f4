"""Mixed precision within a budget: a format for every layer, chosen by what each error costs."""

from __future__ import annotations

from jq.mixed_precision.result import SearchResult
from jq.mixed_precision.run import search

__all__ = ["SearchResult", "search"]
