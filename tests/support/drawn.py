"""One example of Hypothesis to a test: of what is compiled, which takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

# Hypothesis begins with the simplest example there is: a list of one kernel many times over, of one
# row and one column. Its seed is 0, which no other example may have: it is passed over.
SEEDS = st.integers(0, 2**32).filter(bool)


def random_example(*strategies: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Runs a test with one example of the strategies, drawn at random, and a seed after them."""
    once = settings(
        max_examples=1,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: given(*strategies, SEEDS)(once(test))
