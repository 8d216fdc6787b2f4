"""docs/reference/formats.md lists every format with true figures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, Format, get_format

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "formats.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", TEXT, re.MULTILINE)


def test_every_format_is_listed_once() -> None:
    assert sorted(name for name, _, _ in ROWS) == sorted(Format.registry)


@pytest.mark.parametrize(("name", "stored", "decibel"), ROWS, ids=[r[0] for r in ROWS])
def test_figures(name: str, stored: str, decibel: str) -> None:
    fmt, x = get_format(name), np.random.default_rng(0).standard_normal((128, 1024))
    enc = Encoding(name, x.shape, fmt.default_block(x.shape, 1) or (1, 32), scale_type="float16")
    assert fmt.stored_bytes(enc) / x.size == pytest.approx(float(stored), abs=1e-4)
    error = x - fmt.decode(NUMPY, fmt.encode(x, enc), enc)
    assert 10 * np.log10(np.mean(x**2) / np.mean(error**2)) == pytest.approx(
        float(decibel), abs=0.3
    )
