"""Packed fields, by the definition of their bits."""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import NUMPY
from jq.formats.packing import pack, packed_shape, unpack


@pytest.mark.parametrize("shape", [(), (1,), (4,), (5,), (1, 1), (64, 33), (7, 257), (2, 3, 6)])
@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
def test_round_trip(bits: int, shape: tuple[int, ...]) -> None:
    fields = np.random.default_rng(0).integers(0, 2 ** min(bits, 7), shape).astype(np.int8)
    packed = pack(fields, bits)
    assert packed.dtype == np.int8
    assert packed.shape == packed_shape(shape, bits)
    np.testing.assert_array_equal(unpack(NUMPY, packed, shape, bits), fields)


def test_lowest_bits_first() -> None:
    row = np.arange(6, dtype=np.int8)
    np.testing.assert_array_equal(pack(row, 4).view(np.uint8), [0x10, 0x32, 0x54])
    np.testing.assert_array_equal(pack(row % 4, 2).view(np.uint8), [0b11100100, 0b0100])
    word = sum(int(v) << (6 * i) for i, v in enumerate([63, 1, 2, 33]))
    six = pack(np.array([63, 1, 2, 33], np.int8), 6).view(np.uint8)
    assert int.from_bytes(six.tobytes(), "little") == word
    word = sum(v << (3 * i) for i, v in enumerate([7, 0, 1, 6, 5, 2, 4, 3]))
    three = pack(np.array([7, 0, 1, 6, 5, 2, 4, 3], np.int8), 3).view(np.uint8)
    assert int.from_bytes(three.tobytes(), "little") == word


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_rows_are_whole_bytes(bits: int) -> None:
    fields = np.random.default_rng(0).integers(0, 2**bits, (3, 5, 7)).astype(np.int8)
    packed = pack(fields, bits)
    for i in range(3):
        np.testing.assert_array_equal(packed[i], pack(fields[i], bits))
