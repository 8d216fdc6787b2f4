"""Sizes and tables as people read them."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

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


NAMES = st.text("abcdefghij_0123456789", min_size=1, max_size=18)
CELLS = st.one_of(
    NAMES,
    st.lists(NAMES, min_size=2, max_size=4).map("/".join),
    st.lists(NAMES, min_size=2, max_size=6).map(" ".join),
    st.floats(0.001, 1e6).map(lambda x: f"{x:.6f}"),
)


@given(st.lists(st.lists(CELLS, min_size=6, max_size=6), min_size=1, max_size=4), st.data())
def test_words_and_numbers_stay_whole_at_80_columns(rows: list[list[str]], data) -> None:
    count = data.draw(st.integers(1, 6))
    table = plain_table(*(f"column{i}" for i in range(count)), title="Some title")
    for row in rows:
        table.add_row(*row[:count])
    shown = to_text(table, width=80)
    assert max(map(len, shown.splitlines())) <= 80
    words = Counter(part for line in shown.split() for part in re.findall(r"[^/]*/|[^/]+", line))
    for row in rows:
        for cell in row[:count]:
            wanted = Counter(p for w in cell.split() for p in re.findall(r"[^/]*/|[^/]+", w))
            assert wanted <= words, (cell, shown)


def test_a_table_that_fits_is_as_it_was_and_one_that_does_not_is_blocks() -> None:
    table = plain_table("layer", "SQNR dB", "note", title="Layers")
    table.add_row("encoder/layers/10/attention", "35.123456", "")
    table.add_row("head", "41.5", Text("rounded", style="red"))
    assert without_blanks(to_text(table, width=80)) == [
        "Layers",
        "layer                        SQNR dB    note",
        "encoder/layers/10/attention  35.123456",
        "head                         41.5       rounded",
    ]
    assert without_blanks(to_text(table, width=34)) == [
        "Layers",
        "layer         SQNR dB    note",
        "encoder/      35.123456",
        "layers/10/",
        "attention",
        "head          41.5       rounded",
    ]
    assert without_blanks(to_text(table, width=20)) == [
        *("Layers", "layer: encoder/", "layers/10/", "attention", "  SQNR dB: 35.123456"),
        *("layer: head", "  SQNR dB: 41.5", "  note: rounded"),
    ]


def without_blanks(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]
