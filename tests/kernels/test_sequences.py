"""Rows that are left out: the others have the bits that they have among all rows."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import (
    Bias,
    Dequantize,
    Gelu,
    Gemm,
    IntegerAttention,
    Kernel,
    Normalize,
    Quantize,
    QuantizeRows,
    RegisterTile,
    Residual,
    Sequences,
    Streams,
    get_isa,
)
from jq.kernels.emit.builder import Builder
from jq.kernels.machine.tiling import even_rows
from jq.kernels.schedule.rows import Blocks
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE
from tests.kernels.test_integer_attention import inputs
from tests.kernels.test_integer_attention import kernels as attentions
from tests.kernels.test_quantize_rows import schemes
from tests.support.drawn import random_example

vectors = [isa for isa in HERE if not get_isa(isa).tiles]
isas = st.sampled_from(vectors)
lengths = st.sampled_from([13, 1, 2, 7, 16, 33, 70])
EPILOGUES = (
    (Dequantize(), Bias(), Gelu(codes=True), Quantize(exact=False)),
    (Dequantize(per_row=True), Bias(), Residual()),
    (),
)


@st.composite
def products(draw: st.DrawFn, length: int, batch: int) -> Gemm:
    k = draw(st.sampled_from([900, 33, 1]))  # of long sums epilogues run among the next products
    n = draw(st.sampled_from([96, 40, 5]))
    rows, wide = draw(st.sampled_from([(4, 2), (5, 1), (13, 1)]))
    return Gemm(
        isa=draw(isas),
        m=length * batch,
        k=k,
        n=n,
        unsigned=draw(st.booleans()),
        row_zero=draw(st.booleans()),
        epilogue=draw(st.sampled_from(EPILOGUES)),
        cut=RegisterTile(rows, 1 if n < 96 else wide),
    )


def ragged(kernel: Kernel, sequences: Sequences) -> Kernel:
    """The same kernel, of rows that may be left out."""
    name = "rows" if isinstance(kernel, Gemm) else "sequences"
    return dataclasses.replace(kernel, **{name: sequences})


@st.composite
def kernels(draw: st.DrawFn) -> tuple[Kernel, int, bool]:
    """A kernel of all rows, the length of its sequences, and whether the others are made 0."""
    fill = draw(st.booleans())
    length, batch = draw(lengths), draw(st.integers(1, 4))
    m, kind = length * batch, draw(st.sampled_from("gnq"))
    if kind == "g":
        return draw(products(length, batch)), length, fill
    k, isa, scheme = draw(st.sampled_from([80, 1, 15])), draw(isas), draw(schemes)
    if kind == "q":
        return QuantizeRows(isa=isa, m=m, k=k, scheme=scheme), length, fill
    keep = draw(st.booleans())
    normalize = Normalize(isa=isa, m=m, k=k, keep=keep, scheme=None if keep else scheme)
    return normalize, length, fill


def values(kernel: Kernel, rng: np.random.Generator) -> list[np.ndarray]:
    """Operands of any kind: what they say does not matter, only that both ways agree."""
    found = []
    for kind in kernel.operands:
        if kind.element == "f32":
            found.append((rng.random(kind.shape) * 0.1 + 0.01).astype(np.float32))
        else:
            found.append(rng.integers(-128, 128, kind.shape).astype(kind.dtype))
    return found


def check(runner: Runner, at: int, kernel: Any, operands: list[Any], counts: np.ndarray) -> None:
    """Kernels `at` and `at + 1` are of all rows, and of those that are wanted."""
    sequences: Sequences = kernel.sequences
    whole = runner.run(at, *operands)
    some = runner.run(at + 1, *operands, counts)
    known = np.where((counts < 0) | (counts > sequences.length), sequences.length, counts)
    wanted = np.arange(sequences.length) < known[:, None]
    for expected, found in zip(whole, some, strict=True):
        shape = (len(counts), sequences.length, -1)
        expected, found = expected.reshape(shape), found.reshape(shape)
        np.testing.assert_array_equal(found[wanted], expected[wanted], kernel.to_json())
        if sequences.fill and len(found[0, 0]) > 1:
            assert not found[~wanted].any(), kernel.to_json()


def some_counts(rng: np.random.Generator, sequences: Sequences, rows: int) -> np.ndarray:
    """Counts of rows, none and all among them, and numbers that are no counts."""
    n = sequences.length
    options = [0, 1, n, n - 1, n // 2, n // 3, -1, n + 5, -(2**31)]
    return rng.choice(options, sequences.operand(rows).shape).astype(np.int32)


@random_example(st.lists(kernels(), min_size=10, max_size=10))
def test_rows_that_are_wanted(found: list[tuple[Any, int, bool]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(k, ragged(k, Sequences(n, fill))) for k, n, fill in found]
    runner = Runner([kernel for pair in pairs for kernel in pair])
    for i, (whole, some) in enumerate(pairs):
        rows = whole.results[0].shape[0]
        check(runner, 2 * i, some, values(whole, rng), some_counts(rng, some.sequences, rows))


@random_example(st.lists(attentions().filter(lambda k: k.isa in vectors), min_size=6, max_size=6))
def test_queries_that_are_wanted(found: list[IntegerAttention], seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [(k, dataclasses.replace(k, sequences=Sequences(k.queries))) for k in found]
    runner = Runner([kernel for pair in pairs for kernel in pair])
    for i, (whole, some) in enumerate(pairs):
        counts = some_counts(rng, some.sequences, whole.batch * whole.queries)
        check(runner, 2 * i, some, inputs(rng, whole), counts)


def test_descriptions_survive_and_nonsense_is_refused() -> None:
    kernel = Gemm(isa=vectors[-1], m=128, k=32, n=48, rows=Sequences(64, fill=True))
    assert Kernel.from_json(kernel.to_json()) == kernel
    assert kernel.operands[-1].shape == (2,)
    with pytest.raises(InternalError, match="no sequences of 63"):
        _ = dataclasses.replace(kernel, rows=Sequences(63)).operands
    with pytest.raises(InternalError, match="no 2 streams"):
        dataclasses.replace(kernel, cut=Streams(2))


@pytest.mark.parametrize(("vectors", "length", "rows"), [(4, 128, 4), (2, 128, 8), (3, 1, 1)])
def test_register_tiles_divide_a_sequence(vectors: int, length: int, rows: int) -> None:
    """The last tile of a sequence is moved back, so rows of a tile that does not fit are lost."""
    assert even_rows(get_isa("avx512_vnni"), vectors, length) == rows


@pytest.mark.parametrize(("batch", "parts"), [(1, 16), (8, 4), (3, 5), (1, 1), (7, 1)])
def test_every_block_is_somebodys(batch: int, parts: int) -> None:
    """Neighbours are not of the same part of a sequence."""
    blocks = Blocks.of(batch * parts * 8, 8, Sequences(parts * 8))
    assert blocks.count == batch * parts

    class Numbers(Builder):
        def __init__(self) -> None:
            pass

    found = [blocks.first(Numbers(), number) for number in range(blocks.count)]
    assert sorted(found) == list(range(0, blocks.rows, 8))
    if blocks.count > 3:
        assert all(abs(a - b) > 8 for a, b in pairwise(found))
