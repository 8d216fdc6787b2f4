"""Decoding gives the same bits in NumPy and wherever programs run."""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import Encoding, get_format
from tests.formats.encodings import NAMES, encodings, values
from tests.support.programs import Case, check


def decode_case(enc: Encoding, *, constant: bool) -> Case:
    fmt = get_format(enc.format)
    parts = fmt.encode(values(enc.shape), enc)

    def decode(ops, *arrays):
        return fmt.decode(ops, dict(zip(parts, arrays, strict=True)), enc)

    return Case(decode, list(parts.values()), constant)


@pytest.mark.parametrize("name", NAMES)
def test_iree_decodes_constants(name: str) -> None:
    check([decode_case(enc, constant=enc.shape != (7, 257)) for enc in encodings(name)], "iree")


@pytest.mark.parametrize("runner", ["interpreter", "xla"])
@pytest.mark.parametrize("name", NAMES)
def test_oracles_decode(name: str, runner: str) -> None:
    check([decode_case(enc, constant=False) for enc in encodings(name)], runner)


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_decodes_alike(name: str) -> None:
    """Codes that no encoder writes, NaN and infinities included."""
    fmt = get_format(name)
    enc = next(e for e in encodings(name) if e.shape == (64, 33))
    rng = np.random.default_rng(1)
    parts = {
        part: rng.integers(-128, 128, (*shape, dtype.itemsize)).astype(np.int8).view(dtype)[..., 0]
        for part, (shape, dtype) in fmt.storage(enc).items()
    }
    if "scale" in parts and parts["scale"].dtype.kind == "f":
        parts["scale"] = np.abs(np.nan_to_num(parts["scale"], nan=1, posinf=2, neginf=3))
    case = Case(
        lambda ops, *a: fmt.decode(ops, dict(zip(parts, a, strict=True)), enc), list(parts.values())
    )
    check([case], "interpreter")


@pytest.mark.parametrize("name", NAMES)
def test_parts_are_what_storage_says(name: str) -> None:
    fmt = get_format(name)
    for enc in encodings(name):
        parts = fmt.encode(values(enc.shape), enc)
        assert {k: (v.shape, v.dtype) for k, v in parts.items()} == fmt.storage(enc)
        assert fmt.stored_bytes(enc) == sum(v.nbytes for v in parts.values())
        assert not any(v.dtype.kind == "u" for v in parts.values())
