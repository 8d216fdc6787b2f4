"""Sizes as people read them."""

from __future__ import annotations

import pytest

from jq.tables import size


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (23 << 20, "23 MiB"), (3 << 30, "3 GiB")],
)
def test_sizes_are_powers_of_1024(count: int, shown: str) -> None:
    assert size(count) == shown
