"""Mixed precision within a budget: a format for every layer, chosen by what each error costs."""

from __future__ import annotations

from jq.search.result import SearchResult
from jq.search.run import search

__all__ = ["SearchResult", "search"]
