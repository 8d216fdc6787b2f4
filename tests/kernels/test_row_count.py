"""A row has the same bits, however many rows and hidden keys are computed with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jq.kernels import (
    Attention,
    Bias,
    Dequantize,
    Gelu,
    Gemm,
    Gemv,
    IntegerAttention,
    Kernel,
    Normalize,
    Quantize,
    QuantizeRows,
    Residual,
    Silu,
    SplitRows,
    Streams,
    get_isa,
)
from jq.kernels.attention.description import TILED_QUERIES
from jq.kernels.tensor import TensorType
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE, codes
from tests.kernels.test_gemv import build as gemv
from tests.kernels.test_gemv import weights
from tests.kernels.test_quantize_rows import schemes
from tests.support.drawn import random_example

Pair = tuple[Kernel, Kernel]  # of all rows, of one
Arrays = list[np.ndarray]
# The first of each is what the first example takes.
isas, rows = st.sampled_from(HERE), st.sampled_from([66, 2, 3, 5, 8, 17])
depths = st.sampled_from([200, 1, 3, 15, 16, 33, 65, 130])
TOKENS = Attention | IntegerAttention
LATER = 37  # keys that a single query has besides, all hidden


@st.composite
def products(draw: st.DrawFn) -> Pair:
    """Products; of a single large row `kernel-gemm` reads several streams."""
    start, isa = Dequantize(per_row=True), draw(isas)
    steps = st.sampled_from(
        [(Silu(),), (Gelu(),), (Gelu(True),), (Bias(), Residual()), (Residual(), Quantize())]
    )
    n = draw(st.sampled_from([33, 300]))
    whole = Gemm(
        isa=isa, m=draw(rows), k=draw(depths), n=n, row_zero=True, epilogue=(start, *draw(steps))
    )
    streams = 4 if n > 256 and get_isa(isa).dot.group == 4 else 1
    return whole, dataclasses.replace(whole, m=1, cut=Streams(streams) if streams > 1 else None)


@st.composite
def block_products(draw: st.DrawFn) -> Pair:
    whole = gemv(
        draw(st.sampled_from([4, 8])),
        draw(st.sampled_from(["", "minimum", "zero"])),
        draw(st.sampled_from(["f16", "f32"])),
        draw(st.sampled_from([1, 2, 4])),
        0,
        isa=draw(isas),
        m=draw(rows),
        k=draw(depths),
        n=draw(depths),
        per_block=draw(st.booleans()),
        digits=draw(st.sampled_from([1, 3])),
        epilogue=draw(st.sampled_from([(), (Residual(), Bias())])),
    )
    return whole, dataclasses.replace(whole, m=1)


@st.composite
def normalizations(draw: st.DrawFn) -> Pair:
    flags = {name: draw(st.booleans()) for name in ("center", "gamma", "beta")}
    whole = Normalize(isa=draw(isas), m=draw(rows), k=draw(depths), scheme=draw(schemes), **flags)
    return whole, dataclasses.replace(whole, m=1)


@st.composite
def row_functions(draw: st.DrawFn) -> Pair:
    isa, m, k, scheme = draw(isas), draw(rows), draw(depths), draw(schemes)
    quantize, split = QuantizeRows(isa=isa, m=m, k=k, scheme=scheme), SplitRows(isa=isa, m=m, k=k)
    return draw(
        st.sampled_from(
            [
                (quantize, dataclasses.replace(quantize, m=1)),
                (split, dataclasses.replace(split, m=1)),
            ]
        )
    )


def heads(draw: st.DrawFn, n: int) -> dict[str, Any]:
    """Fields that attentions of a sequence of `n` have in common."""
    dim = draw(st.sampled_from([64, 8, 20]))
    shape = {"batch": 1, "queries": n, "keys": n, "heads": 2, "kv_heads": 1, "dim": dim}
    return {**shape, "widths": (2 * dim, dim, dim), "starts": (0, 0, 0), "mask": "full"}


def on_cache(whole: Attention | IntegerAttention) -> Pair:
    """An attention, and that of one token on a cache that has room for more."""
    return whole, dataclasses.replace(whole, queries=1, keys=whole.keys + LATER, mask="keys")


@st.composite
def attentions(draw: st.DrawFn) -> Pair:
    """On matrix tiles sums of bf16 are rounded otherwise, and few queries are not on them."""
    isa, n = draw(isas), draw(rows)
    tiled = get_isa(isa).tiles and n >= TILED_QUERIES
    kinds = ["bf16", "f32"] if get_isa(isa).multiplies_bf16 and not tiled else ["f32"]
    precision = draw(st.sampled_from(kinds))
    return on_cache(Attention(isa=isa, **heads(draw, n), scale=0.2, precision=precision))


@st.composite
def integer_attentions(draw: st.DrawFn) -> Pair:
    return on_cache(IntegerAttention(isa=draw(isas), **heads(draw, draw(rows))))


def only(x: np.ndarray, kind: TensorType, row: int) -> np.ndarray:
    """That row of `x`, where the other tensor has one row alone."""
    for axis, (have, want) in enumerate(zip(x.shape, kind.shape, strict=True)):
        if want < have:
            x = np.take(x, [row], axis)
    return x


def operands(
    rng: np.random.Generator, whole: Kernel, alone: Kernel
) -> tuple[Arrays, Callable[[int], Arrays]]:
    """Operands of all rows, and of any one of them."""
    if isinstance(whole, TOKENS):
        return attention_operands(rng, whole)
    many = [values(rng, kind) for kind in whole.operands]
    packed = packed_operands(rng, whole, alone)

    def one(row: int) -> Arrays:
        pairs = enumerate(zip(many, alone.operands, strict=True))
        return [packed[i][1] if i in packed else only(x, kind, row) for i, (x, kind) in pairs]

    return [packed[i][0] if i in packed else x for i, x in enumerate(many)], one


def values(rng: np.random.Generator, kind: TensorType) -> np.ndarray:
    if kind.element != "f32":
        return codes(rng, kind.shape).astype(kind.dtype)
    size = 0.013 if kind.shape == (1,) else 1  # a scale
    return (size * np.abs(rng.standard_normal(kind.shape))).astype(np.float32)


def packed_operands(
    rng: np.random.Generator, whole: Kernel, alone: Kernel
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """The weights, in the form of either kernel, by the operand's number."""
    if isinstance(whole, Gemm) and isinstance(alone, Gemm):
        weight = codes(rng, (whole.k, whole.n))
        first, second = whole.pack(weight), alone.pack(weight)
        numbers = {1: "weights", 2: "init", 4: "colsum"}
        return {i: (first[name], second[name]) for i, name in numbers.items()}
    if isinstance(whole, Gemv) and isinstance(alone, Gemv):
        weight, grid = weights(rng, whole), (whole.blocks, whole.n)
        scale = rng.uniform(0.01, 1, grid).astype({"f16": "f2", "f32": "f4"}[whole.scale])
        zero = rng.integers(0, 16, grid).astype(np.int8) if whole.zero else None
        parts = weight, scale, -scale if whole.minimum else None, zero
        return {2: (whole.pack(*parts), alone.pack(*parts))}
    return {}


def attention_operands(
    rng: np.random.Generator, whole: Attention | IntegerAttention
) -> tuple[Arrays, Callable[[int], Arrays]]:
    """A causal mask; of the keys after those of the sequence the query sees none either."""
    n, keys = whole.queries, whole.keys + LATER
    integers = isinstance(whole, IntegerAttention)
    shapes = [(1, n, whole.widths[0]), *((1, keys, w) for w in whole.widths[1:])]
    q, k, v = (codes(rng, s) if integers else rng.standard_normal(s, np.float32) for s in shapes)
    given = [np.int32([3, -5, 7, -128]), np.float32([1e-4, 1 / 255])] if integers else []
    mask = np.where(np.tri(n, keys, dtype=bool), np.float32(0), np.float32(-3e38))
    many = [q, k[:, :n], v[:, :n], *given, mask[None, :, :n]]

    def one(row: int) -> Arrays:
        return [q[:, row : row + 1], k, v, *given, mask[row : row + 1]]

    return many, one


FAMILIES = (products, block_products, normalizations, row_functions, attentions, integer_attentions)


@random_example(st.tuples(*(family() for family in FAMILIES)))
def test_rows_alone_have_the_bits_of_rows_together(pairs: tuple[Pair, ...], seed: int) -> None:
    runner = Runner([kernel for pair in pairs for kernel in pair])
    rng = np.random.default_rng(seed)
    for i, (whole, alone) in enumerate(pairs):
        many, one = operands(rng, whole, alone)
        together = runner.run(2 * i, *map(np.ascontiguousarray, many))
        for row in range(whole.queries if isinstance(whole, TOKENS) else whole.m):
            found = runner.run(2 * i + 1, *map(np.ascontiguousarray, one(row)))
            for a, b, kind in zip(found, together, alone.results, strict=True):
                np.testing.assert_array_equal(a, only(b, kind, row), err_msg=whole.to_json())
