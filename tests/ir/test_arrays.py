"""Every array operation means on StableHLO, XLA and IREE what it means in NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from jq.base.errors import InternalError
from jq.ir import editing, func, ir, tensor_type
from jq.ir.arrays import StableHloOps
from tests.support.programs import RUNNERS, Case, check

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 7)).astype(np.float32) * 3
TIES = np.arange(-8, 8, dtype=np.float32).reshape(4, 4) / 2
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -1.5, 300.0], np.float32)
BITS = RNG.integers(-128, 128, (6, 9)).astype(np.int8)
AMOUNT = RNG.integers(0, 9, (6, 9)).astype(np.int8)
INDEX = RNG.integers(0, 16, (3, 11)).astype(np.int8)
SMALL = RNG.standard_normal(16).astype(np.float32)
ODD = RNG.standard_normal(11).astype(np.float32)
LARGE = RNG.standard_normal(300).astype(np.float32)

CASES = {
    "arithmetic": Case(
        lambda o, x, y: [o.add(x, y), o.sub(x, y), o.mul(x, y), o.div(x, y)], [X, X[::-1]]
    ),
    "rounding": Case(lambda o, x: [o.round_even(x), o.convert(o.round_even(x), np.int8)], [TIES]),
    "order": Case(lambda o, x, y: [o.maximum(x, y), o.minimum(x, y), o.abs(x)], [X, X[::-1]]),
    "nan is not equal": Case(
        lambda o, x: [o.equal(x, x), o.select(o.equal(x, x), x, o.abs(x))], [SPECIAL]
    ),
    "nan wins": Case(lambda o, x, y: [o.maximum(x, y), o.minimum(y, x)], [SPECIAL, SPECIAL[::-1]]),
    "reductions": Case(
        lambda o, x: [o.reduce_max(x, (1,)), o.reduce_min(x, (0, 1)), o.reduce_max(x, (0,))], [X]
    ),
    "integer reductions": Case(lambda o, x: [o.reduce_max(x, (1,)), o.reduce_min(x, (0,))], [BITS]),
    "bits": Case(lambda o, x, y: [o.bit_and(x, y), o.bit_or(x, y)], [BITS, AMOUNT]),
    "shifts": Case(lambda o, x, n: [o.shift_left(x, n), o.shift_right(x, n)], [BITS, AMOUNT]),
    "integers wrap": Case(
        lambda o, x: [o.add(x, x), o.mul(x, x), o.sub(o.add(x, x), o.abs(x))], [BITS]
    ),
    "bitcast": Case(
        lambda o, x: [o.bitcast(x, np.int32), o.bitcast(o.bitcast(x, np.int32), np.float32)], [X]
    ),
    "narrow floats": Case(
        lambda o, x: [
            o.convert(x, np.float16),
            o.bitcast(o.convert(x, ml_dtypes.bfloat16), np.int16),
        ],
        [X],
    ),
    "wide floats": Case(lambda o, x: o.convert(x, np.float32), [X.astype(np.float16)]),
    "widen": Case(lambda o, x: [o.convert(x, np.int32), o.convert(x, np.float32)], [BITS]),
    "shape": Case(
        lambda o, x: [
            o.reshape(x, (7, 5)),
            o.transpose(x, (1, 0)),
            o.broadcast(x, (5, 2, 7), (0, 2)),
            o.slice(x, (1, 2), (4, 7)),
            o.pad(x, o.constant(np.float32(2)), (1, 0), (0, 3)),
            o.concatenate([x, x], 1),
        ],
        [X],
    ),
    "select tree": Case(lambda o, i: o.take(SMALL, i), [INDEX]),
    "select tree, not a power of two": Case(lambda o, i: o.take(ODD, i), [INDEX % np.int8(11)]),
    "gather": Case(lambda o, i: o.take(LARGE, i), [INDEX.astype(np.int32) * 19]),
}


@pytest.mark.parametrize("runner", RUNNERS)
def test_same_bits_as_numpy(runner: str) -> None:
    check(list(CASES.values()), runner)


def test_a_gather_clamps_its_index() -> None:
    """IREE reads out of bounds otherwise."""
    index = np.array([-5, 0, 299, 300, 2**30], np.int32)

    def take(ops, i):
        inside = i if isinstance(ops, StableHloOps) else np.clip(i, 0, 299)
        return ops.take(LARGE, inside)

    check([Case(take, [index])], "iree")


@pytest.mark.parametrize("dtype", [np.uint8, ml_dtypes.int4, ml_dtypes.float8_e4m3fn])
def test_unreliable_element_types_are_refused(dtype: type) -> None:
    with editing():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ([tensor_type((4,), np.int8)], []))
        with ir.InsertionPoint(main.add_entry_block()), pytest.raises(InternalError, match="int8"):
            StableHloOps().convert(main.entry_block.arguments[0], dtype)
