"""Sizes and tables as people read them."""

from __future__ import annotations

import pytest

from jq.base.tables import LongTable, plain_table, size, to_text


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (23 << 20, "23 MiB"), (3 << 30, "3 GiB")],
)
def test_sizes_are_powers_of_1024(count: int, shown: str) -> None:
    assert size(count) == shown


def test_a_long_table_has_a_line_a_row_and_aligned_columns() -> None:
    """rich takes half a minute for 100,000 rows."""
    table = plain_table("name", "of", title="Ops")
    table.add_column("bytes", justify="right")
    for i in range(LongTable.LONG):
        table.add_row("x" * 200 if i == 7 else f"op{i}\x1b[2J\n", "日本", str(i))
    title, names, *rows = to_text(table).splitlines()
    assert (title, names.split()) == ("Ops", ["name", "of", "bytes"])
    assert len(rows) == LongTable.LONG
    assert rows[0] == "op0\\x1b[2J".ljust(60) + "  日本      0"
    assert rows[7] == "x" * 200 + "  日本      7"
    assert rows[-1] == "op1999\\x1b[2J".ljust(60) + "  日本   1999"
