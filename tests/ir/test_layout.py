"""Stored tensors as matrices decode to the transposed values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, Format, get_format
from jq.formats.affine import Affine
from jq.formats.ggml import GgmlFormat
from jq.ir.layout import MatrixForm

RNG = np.random.default_rng(0)


def check(enc: Encoding, lead: int, free: tuple[int, ...], contracted: tuple[int, ...]):
    fmt, form = get_format(enc.format), MatrixForm(enc, lead, free, contracted)
    parts = fmt.encode(RNG.standard_normal(enc.shape).astype(np.float32), enc)
    new = {k: np.asarray(v) for k, v in form.parts(parts).items()}
    assert {k: (v.shape, v.dtype) for k, v in new.items()} == fmt.storage(form.encoding)
    shape = (
        *enc.shape[:lead],
        *(math.prod(enc.shape[a] for a in axes) for axes in (free, contracted)),
    )
    want = np.asarray(fmt.decode(NUMPY, parts, enc)).transpose(form.order).reshape(shape)
    assert np.array_equal(fmt.decode(NUMPY, new, form.encoding), want)
    if form.is_reshape:
        for name, part in new.items():
            assert np.array_equal(part, parts[name].reshape(part.shape)), name
    return form


@st.composite
def cases(draw):
    """Any format, shape, blocks and way to see it as a matrix."""
    name = draw(st.sampled_from(sorted(Format.registry)))
    rank = draw(st.integers(2, 4))
    shape = [draw(st.integers(1, 5)) for _ in range(rank)]
    order = draw(st.permutations(range(rank)))
    lead = draw(st.integers(0, rank - 2))
    rest = [a for a in order if a >= lead]
    count = draw(st.integers(1, len(rest) - 1))
    free, contracted = tuple(rest[:-count]), tuple(rest[-count:])
    own = get_format(name).default_block((64,) * rank, contracted[-1])
    if own is not None:
        size = own[contracted[-1]]
        ragged = 0 if isinstance(get_format(name), GgmlFormat) else draw(st.sampled_from([0, 8]))
        shape[contracted[-1]] = size * draw(st.integers(1, 2)) + ragged
        enc = Encoding(name, tuple(shape), own)
    else:
        block = [draw(st.sampled_from([0, 1])) for _ in range(rank)]
        if draw(st.booleans()):
            block[contracted[-1]] = draw(st.sampled_from([8, 16]))
            shape[contracted[-1]] = draw(st.sampled_from([16, 24, 40]))
        block[:lead] = [1] * lead
        scheme = (
            "asymmetric"
            if isinstance(get_format(name), Affine) and draw(st.booleans())
            else "symmetric"
        )
        enc = Encoding(name, tuple(shape), tuple(block), scheme)
    return enc, lead, free, contracted


@given(cases())
def test_decodes_to_the_transposed_values(case):
    check(*case)


def test_a_stack_of_kernels():
    form = check(Encoding("int4", (3, 64, 33), (1, 32, 1)), 1, (2,), (1,))
    assert form.encoding == Encoding("int4", (3, 33, 64), (1, 1, 32)) and not form.is_reshape


def test_scales_are_repeated_for_every_tap_of_a_filter():
    form = check(Encoding("int4", (3, 3, 48, 5), (0, 0, 32, 1)), 0, (3,), (0, 1, 2))
    assert form.encoding == Encoding("int4", (5, 432), (1, 16))


def test_rows_of_whole_bytes_stay():
    assert check(Encoding("int4", (5, 3, 32), (1, 1, 32)), 0, (0,), (1, 2)).is_reshape
    assert not check(Encoding("int2", (5, 3, 3), (1, 0, 0)), 0, (0,), (1, 2)).is_reshape
    assert check(Encoding("q4_k", (256, 6), (256, 1)), 0, (1,), (0,)).is_reshape


@pytest.mark.parametrize(
    ("enc", "lead", "free", "contracted", "reason"),
    [
        (Encoding("int8", (4, 64, 8), (0, 1, 1)), 1, (1,), (2,), "layers of a stack share"),
        (Encoding("int8", (64, 8), (32, 1)), 0, (0,), (1,), "do not lie along"),
        (Encoding("int8", (3, 36, 8), (1, 32, 1)), 0, (2,), (0, 1), "cut into blocks of 4"),
        (Encoding("q8_0", (32, 64), (32, 1)), 0, (0,), (1,), "do not lie along"),
    ],
)
def test_what_no_matrix_has(enc, lead, free, contracted, reason):
    with pytest.raises(FormatError, match=reason):
        MatrixForm(enc, lead, free, contracted)
