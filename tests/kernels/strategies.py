"""Hypothesis strategies and operands for kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jq.kernels import (
    AddCodes,
    Batch,
    Bias,
    Clamp,
    ColumnScale,
    Dequantize,
    FakeQuantize,
    Gemm,
    JoinDigits,
    Quantize,
    QuantizedResidual,
    Rescale,
    Residual,
    RoundToCodes,
    WideQuantize,
    WideResidual,
    ZeroPoint,
    available,
    get_isa,
)
from jq.kernels.epilogue.code_steps import WideRescale
from tests.kernels import emulated

HERE = list(emulated.ISAS) if emulated.COMMAND else [isa.name for isa in available()]
EDGES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33]

sizes = st.one_of(st.sampled_from(EDGES), st.integers(1, 130))


def epilogues() -> st.SearchStrategy[tuple[Any, ...]]:
    """Steps whose result is exact, in every order that makes sense."""
    middle = st.lists(
        st.sampled_from(
            [
                Bias(),
                ColumnScale(),
                Residual(),
                ZeroPoint(),
                QuantizedResidual(),
                QuantizedResidual(True),
                WideResidual(),
                FakeQuantize(),
                FakeQuantize(-100, 90),
                Clamp(0.0, 6.0),
            ]
        ),
        max_size=3,
    )
    last = st.sampled_from(
        [
            None,
            Quantize(),
            Quantize(divide=False),
            Quantize(unsigned=True),
            Quantize(low=-127),
            Quantize(per_column=True),
            Quantize(per_column=True, unsigned=True),
            WideQuantize(),
            WideQuantize(-(2**15) + 1),
            WideQuantize(divide=False),
        ]
    )
    build = st.builds(
        lambda first, per_row, steps, end: (
            first(per_row=per_row),
            *steps,
            *([end] if end else []),
        ),
        st.sampled_from([Dequantize, Dequantize, JoinDigits, partial(JoinDigits, small=True)]),
        st.booleans(),
        middle,
        last,
    )
    return st.one_of(st.just(()), build, rescales())


def rescales() -> st.SearchStrategy[tuple[Any, ...]]:
    """Steps from sums to codes, with a residual or without; or in integers alone."""
    flags = st.booleans()
    integers = st.builds(
        lambda step, **rest: (replace(step, **rest),),
        st.sampled_from(
            [Rescale(), Rescale(unsigned=True), Rescale(-100, 90), WideRescale(-(2**15), 2**15 - 1)]
        ),
        rounding=st.sampled_from(["double", "single"]),
        left=flags,
    )
    floats = st.builds(
        lambda residual, last: (Dequantize(), *residual, last),
        st.one_of(st.just(()), st.tuples(st.builds(AddCodes, flags, flags, flags))),
        st.one_of(st.builds(RoundToCodes, unsigned=flags), st.just(RoundToCodes(-100, 90, True))),
    )
    return st.one_of(floats, integers)


def gemms() -> st.SearchStrategy[Gemm]:
    return st.builds(
        lambda column_zero, unsigned, **rest: Gemm(
            column_zero=column_zero,
            unsigned=unsigned and (reads_unsigned(rest["isa"]) or not column_zero),
            **rest,
        ),
        column_zero=st.booleans(),
        isa=st.sampled_from(HERE),
        m=sizes,
        k=sizes,
        n=sizes,
        rows=st.sampled_from([None, None, None, Batch(2), Batch(3)]),
        unsigned=st.booleans(),
        row_zero=st.booleans(),
        epilogue=epilogues(),
    )


def reads_unsigned(isa: str) -> bool:
    """True if an instruction set's products read codes as unsigned: sums of such are known."""
    return get_isa(isa).dot.lhs_unsigned


def codes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random int8 with many extremes."""
    values = rng.integers(-128, 128, shape, dtype=np.int8)
    extreme = rng.choice(np.array([-128, 127, 0], np.int8), shape)
    return np.where(rng.random(shape) < 0.3, extreme, values)


def step_operands(
    rng: np.random.Generator, kernel: Gemm, magnitude: float
) -> list[list[np.ndarray]]:
    """Arrays of every epilogue step, as `Gemm.reference` takes them; ties included."""
    shapes = {
        "column": (kernel.batch, 1, kernel.n),
        "row": (kernel.batch, kernel.m, 1),
        "element": (kernel.batch, kernel.m, kernel.n),
        "scalar": (kernel.batch, 1, 1),
    }

    def one(how: str, kind: str, step: object) -> np.ndarray:
        shape = shapes[how]
        if kind == "i8":
            return codes(rng, shape)
        if kind == "i16":
            return rng.integers(-(2**15), 2**15, shape, dtype=np.int16)
        if kind == "i32" and how == "element":
            most = 2**22 if getattr(step, "small", False) else 2**23
            return rng.integers(-most, most, shape).astype(np.int32)  # sums of upper digits
        if kind == "i32":
            return rng.choice([0, 3, -128, 127], (shape[0], 1, shape[2])).astype(np.int32)
        if isinstance(step, Quantize) and how == "column":
            return rng.choice([0.5, 0.037, 1.0], shape).astype(np.float32)
        if isinstance(step, Dequantize) and how == "column":
            # Powers of two make ties of the following rounding.
            exact = np.exp2(rng.integers(-3, 1, shape)) / magnitude
            return np.where(rng.random(shape) < 0.5, exact, rng.random(shape) / magnitude).astype(
                np.float32
            )
        if how == "row":
            return (np.exp2(rng.integers(-2, 2, shape)) * rng.choice([1, 0.7], shape)).astype(
                np.float32
            )
        if how == "scalar" and isinstance(step, WideQuantize):
            return np.full(shape, rng.choice([2.0**-13, 2.0**-15, 3e-5]), np.float32)
        if how == "scalar":
            exact = isinstance(step, AddCodes)
            return np.full(shape, rng.choice([0.5, 4 if exact else 0.037]), np.float32)
        exact = rng.integers(-64, 64, shape) / 4
        return np.where(rng.random(shape) < 0.5, exact, rng.standard_normal(shape)).astype(
            np.float32
        )

    return [
        rescale_operands(rng, step, shapes)
        if isinstance(step, Rescale)
        else [one(how, kind, step) for how, kind in step.operands]
        for step in kernel.epilogue
    ]


def rescale_operands(
    rng: np.random.Generator, step: Rescale, shapes: dict[str, tuple[int, ...]]
) -> list[np.ndarray]:
    """Mantissas of all sizes and signs, shifts that end anywhere, and a zero point."""
    wide, one = shapes["column"], shapes["scalar"]
    mantissa = rng.integers(2**30, 2**31, wide)
    mantissa = np.where(rng.random(wide) < 0.3, rng.choice([2**30, 2**31 - 1, 0], wide), mantissa)
    right = rng.choice([0, 1, 3, 8, 12, 20, 31], wide)
    left = rng.choice([0, 1, 5, 29], wide) * (right == 0)
    sign = rng.choice([-1, 1], wide)
    zero = np.full(one, rng.choice([-128, 0, 127]))
    arrays = [mantissa * sign, *([left] if step.left else []), right, zero]
    return [array.astype(np.int32) for array in arrays]
