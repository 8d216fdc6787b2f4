"""Products of bytes whose sums of 16 bits are proven, against NumPy integers, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.kernels import Dequantize, Gemm, PairGemm, RoundToCodes, Sequences, get_isa
from jq.kernels.gemm.pair_order import BY_PAIRS, HALVED, PROVEN, PairOrder
from jq.kernels.gemm.pair_weights import STAGE, PairWeights
from tests.kernels.harness import Runner
from tests.kernels.references import reference
from tests.kernels.strategies import HERE, codes, epilogues, sizes, step_operands
from tests.support.drawn import random_example

ISAS = [isa for isa in HERE if get_isa(isa).pairs]
REQUANTIZED = (Dequantize(), RoundToCodes())
needs_pairs = pytest.mark.skipif(not ISAS, reason="no instruction set with sums of pairs here")


def drawn_weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """A weight of any kind: bell-shaped, of extremes, of one number."""
    spread = rng.choice([5, 30, 60, 200])
    kinds = [
        lambda: np.clip(np.rint(rng.standard_normal(shape) * spread), -127, 127),
        lambda: codes(rng, shape),
        lambda: np.full(shape, rng.choice([127, -127, -128])),
        lambda: rng.choice([127, -128], shape),
    ]
    return kinds[rng.integers(len(kinds))]().astype(np.int8)


def drawn_codes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    one = rng.choice([-128, 127, 200])
    return codes(rng, shape) if one == 200 else np.full(shape, one, np.int8)


def described(isa: str, m: int, weight: np.ndarray, **more: object) -> tuple[PairGemm, PairWeights]:
    known = PairWeights.of_matrix(weight, get_isa(isa).lanes)
    k, n = weight.shape
    return PairGemm(isa=isa, m=m, k=k, n=n, chains=known.chains, **more), known  # type: ignore[arg-type]


def operands_of(
    rng: np.random.Generator, kernel: PairGemm, known: PairWeights, lhs: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """The operands up to those of sequences, and the expected result."""
    weight = known.weight[0, :, 0]
    bias = rng.integers(-(2**20), 2**20, kernel.n, dtype=np.int32)
    zero = rng.integers(-128, 128, kernel.m, dtype=np.int32)
    if not kernel.row_zero:
        zero[:] = zero[0]
    plain = kernel.starts(weight, bias, 0 if kernel.row_zero else int(zero[0]))
    packed = kernel.pack(known, plain["init"])
    operands = [lhs, *packed.values()]
    if kernel.row_zero:
        operands += [zero, plain["colsum"]]
    alike = Gemm(isa=kernel.isa, m=kernel.m, k=kernel.k, n=kernel.n, epilogue=kernel.epilogue)
    steps = step_operands(rng, alike, 100.0 * np.sqrt(kernel.k))
    for step, arrays in zip(kernel.epilogue, steps, strict=True):
        for (how, _), array in zip(step.operands, arrays, strict=True):
            operands.append(kernel.pad_columns(array) if how == "column" else array)
    expected = reference(kernel, lhs, weight, bias, zero, [[a[0] for a in s] for s in steps])
    types = kernel.operands[: len(operands)]
    return [o.reshape(t.shape) for o, t in zip(operands, types, strict=True)], expected


def pair_gemms() -> list[st.SearchStrategy[PairGemm]]:
    """Products of any shape, or none: a guard is to find out where chains begin."""
    wide, chains = st.integers(16, 60), st.integers(1, 20)
    isas = st.sampled_from(ISAS)
    return [st.builds(PairGemm, isa=isas, m=sizes, k=sizes, n=wide, chains=chains)] * bool(ISAS)


def cases() -> st.SearchStrategy[tuple[object, ...]]:
    depths = st.one_of(sizes, st.sampled_from([STAGE, STAGE + 1, STAGE + 40, 2 * STAGE + 35]))
    return st.tuples(st.sampled_from(ISAS), sizes, depths, sizes, st.booleans(), epilogues())


@needs_pairs
@random_example(st.lists(cases(), min_size=12, max_size=12))
def test_every_shape_weight_and_epilogue_is_exact(drawn: list, seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = []
    for isa, m, k, n, row_zero, epilogue in drawn:
        weight = drawn_weight(rng, k, max(n, get_isa(isa).lanes))
        made.append(described(isa, m, weight, row_zero=row_zero, epilogue=epilogue))
    runner = Runner([kernel for kernel, _ in made])
    for i, (kernel, known) in enumerate(made):
        lhs = drawn_codes(rng, kernel.m, kernel.k)
        operands, expected = operands_of(rng, kernel, known, lhs)
        (result,) = runner.run(i, *operands)
        np.testing.assert_array_equal(result, expected, err_msg=kernel.to_json())


@needs_pairs
def test_rows_of_sequences() -> None:
    rng, weight = np.random.default_rng(0), drawn_weight(np.random.default_rng(1), 40, 24)
    rows = Sequences(35, fill=True)
    made = [described(isa, 70, weight, rows=rows) for isa in ISAS]
    runner = Runner([kernel for kernel, _ in made])
    for i, (kernel, known) in enumerate(made):
        operands, expected = operands_of(rng, kernel, known, codes(rng, (70, 40)))
        operands.append(np.array([0, 20], np.int32))
        expected[np.arange(70) % 35 >= np.repeat([0, 20], 35)] = 0
        (result,) = runner.run(i, *operands)
        np.testing.assert_array_equal(result, expected, err_msg=kernel.to_json())


def test_what_is_proven_holds_for_the_worst_codes() -> None:
    """Every sum of 16 bits by itself, at the codes that make it largest and smallest."""
    rng, limits = np.random.default_rng(0), np.iinfo(np.int16)
    for lanes in (8, 16):
        weights = [drawn_weight(rng, 16, lanes) for _ in range(40)]
        weights += [np.clip(rng.standard_normal((16, lanes)) * 35, -128, 127) for _ in range(40)]
        order = PairOrder.of(np.stack(weights).astype(np.int8))
        assert {PROVEN, BY_PAIRS, HALVED} == set(order.kinds.reshape(-1).tolist())
        # chain, word, half of a word, code of a pair
        signed = order.weights.reshape(-1, 2, 2, 2, 2, lanes).astype(np.int64)
        for sign in (1, -1):
            pairs = 255 * np.maximum(sign * signed, 0).sum(4)
            quads, kinds = pairs.sum(2), order.kinds
            most = limits.max if sign == 1 else -limits.min
            assert quads[kinds == PROVEN].max() <= most
            assert pairs[kinds == BY_PAIRS].max() <= most


def test_an_order_has_every_code_once_and_is_the_same_again() -> None:
    rng = np.random.default_rng(0)
    windows = np.stack([drawn_weight(rng, 16, 8) for _ in range(30)])
    windows[::3, 5:] = 0  # what fills up K: its codes make no chain
    order, again = PairOrder.of(windows), PairOrder.of(windows)
    for one, other in zip(vars(order).values(), vars(again).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (np.sort(order.source, 1) == np.arange(16)).all()
    back = np.zeros_like(windows)
    signed = order.weights * np.where(order.negated, -1, 1)[..., None]
    np.put_along_axis(back, order.source.astype(np.int64)[..., None], signed.astype(np.int8), 1)
    np.testing.assert_array_equal(back, windows)
    assert not order.weights[::3].reshape(-1, 2, 8, 8)[:, 1].any()


def test_bell_shaped_weights_are_proven() -> None:
    weight = np.random.default_rng(0).standard_normal((384, 64))
    weight = np.rint(weight / np.abs(weight).max(0) * 127).astype(np.int8)
    assert PairWeights.of_matrix(weight, 8).work < 0.8  # 0.75 if all were
    assert PairWeights.of_matrix(np.full((384, 64), 127, np.int8), 8).work <= 1
    extremes = np.random.default_rng(0).choice([-127, 127], (384, 64)).astype(np.int8)
    assert PairWeights.of_matrix(extremes, 8).work > 1
