"""Products against NumPy integers, bit for bit, on every instruction set that this machine has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import (
    Batch,
    Bias,
    Clamp,
    Dequantize,
    Gelu,
    Gemm,
    Kernel,
    Quantize,
    RegisterTile,
    Residual,
    Silu,
    Step,
    Streams,
    get_isa,
)
from jq.kernels.gemm.panel import STAGE
from tests.kernels.harness import Runner, linked
from tests.kernels.references import reference
from tests.kernels.steps import computed
from tests.kernels.strategies import HERE, codes, gemms, step_operands
from tests.support.drawn import random_example

FLIP = np.int8(-128)


def run_and_compare(runner: Runner, index: int, kernel: Gemm, seed: int) -> tuple:
    """The kernel's result and the reference, on drawn operands."""
    rng = np.random.default_rng(seed)
    batch, m, k, n = kernel.batch, kernel.m, kernel.k, kernel.n
    lhs, weight = codes(rng, (batch, m, k)), codes(rng, (batch, k, n))
    bias = rng.integers(-(2**20), 2**20, (batch, n), dtype=np.int32)
    zero = rng.integers(-128, 128, (batch, m), dtype=np.int32)
    if not kernel.row_zero:
        zero[:] = zero[0, 0]
    columns = rng.integers(-128, 128, (batch, n), dtype=np.int32) * kernel.column_zero
    steps = step_operands(rng, kernel, 100.0 * np.sqrt(k))
    batched = batch > 1
    parts = kernel.pack(
        weight if batched else weight[0],
        bias if batched else bias[0],
        0 if kernel.row_zero else int(zero[0, 0]),
        columns if batched else columns[0],
    )
    stored = lhs ^ FLIP if kernel.unsigned else lhs
    operands = [stored, parts["weights"], parts["init"]]
    if kernel.row_zero:
        operands += [zero, parts["colsum"]]
    if kernel.column_zero:
        operands.append(parts["column_zero"])
    for step, arrays in zip(kernel.epilogue, steps, strict=True):
        for (how, _), array in zip(step.operands, arrays, strict=True):
            operands.append(kernel.pad_columns(array) if how == "column" else array)
    shaped = [o.reshape(t.shape) for o, t in zip(operands, kernel.operands, strict=True)]
    (result,) = runner.run(index, *shaped)
    expected = np.stack(
        [
            reference(
                kernel,
                lhs[i],
                weight[i],
                bias[i],
                zero[i],
                [[a[i] for a in s] for s in steps],
                columns[i],
            )
            for i in range(batch)
        ]
    )
    return result, expected.reshape(result.shape)


@random_example(st.lists(gemms(), min_size=12, max_size=12))
def test_every_shape_and_epilogue_is_exact(kernels: list[Gemm], seed: int) -> None:
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        result, expected = run_and_compare(runner, i, kernel, seed + i)
        np.testing.assert_array_equal(result, expected, err_msg=kernel.to_json())


def test_smallest_and_extreme() -> None:
    """One element, one row, one column; all codes -128 or 127: nothing saturates inside."""
    shapes = [(1, 1, 1, False), (2, 1, 33, True), (1, 255, 64, False), (40, 8, 17, True)]
    kernels = [Gemm(isa=i, m=m, k=k, n=n, unsigned=u) for i in HERE for m, k, n, u in shapes]
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        for a, w in ((-128, -128), (-128, 127), (127, -128), (127, 127)):
            lhs = np.full((kernel.m, kernel.k), a, np.int8)
            weight = np.full((kernel.k, kernel.n), w, np.int8)
            parts = kernel.pack(weight)
            stored = lhs ^ FLIP if kernel.unsigned else lhs
            (result,) = runner.run(i, stored, parts["weights"], parts["init"])
            np.testing.assert_array_equal(result, reference(kernel, lhs, weight))


def test_codes_are_widened_in_parts() -> None:
    """A product that takes no bytes: whole parts, one that begins another, and what is left."""
    depths = [STAGE - 1, STAGE, STAGE + 1, 2 * STAGE + 35]
    isas = [isa for isa in HERE if get_isa(isa).dot.element == "i16"]
    if not isas:
        pytest.skip("no product of this processor takes 16-bit codes")
    kernels = [Gemm(isa=isa, m=7, k=k, n=40) for isa in isas for k in depths]
    kernels += [replace(kernel, column_zero=True, row_zero=True) for kernel in kernels]
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        result, expected = run_and_compare(runner, i, kernel, i)
        np.testing.assert_array_equal(result, expected, err_msg=kernel.to_json())


@pytest.mark.parametrize("step", [Bias(), Residual()], ids=["bias", "residual"])
def test_products_are_rounded_before_sums(step: Step) -> None:
    """Compilers fuse `a * b + c`; the integer level does not."""
    kernels = [Gemm(isa=isa, m=16, k=8, n=64, epilogue=(Dequantize(), step)) for isa in HERE]
    runner = Runner(kernels)
    rng = np.random.default_rng(0)
    lhs, weight = codes(rng, (16, 8)), codes(rng, (8, 64))
    scale = rng.random(64, dtype=np.float32)
    added = rng.standard_normal((1 if step == Bias() else 16, 64)).astype(np.float32) * 999
    for i, kernel in enumerate(kernels):
        parts = kernel.pack(weight)
        shape = kernel.operands[-1].shape
        (result,) = runner.run(i, lhs, parts["weights"], parts["init"], scale, added.reshape(shape))
        expected = reference(kernel, lhs, weight, operands=[[scale[None]], [added]])
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("step", "bound"),
    [
        (Gelu(), 6e-5),
        (Gelu(True), 6e-5),
        (Gelu(codes=True), 7e-5),
        (Gelu(True, codes=True), 7e-5),
        (Silu(), None),
    ],
    ids=["gelu", "gelu-tanh", "gelu-codes", "gelu-tanh-codes", "silu"],
)
def test_float_functions_stay_in_their_bound(step: Step, bound: float | None) -> None:
    """One product by 1: the epilogue sees bias exactly, over a dense range and far outside. The
    same bits whatever the lanes are, and however tables are read.
    """
    n, sets = 4096, {(isa.lanes, isa.permute, isa.tiles): isa.name for isa in map(get_isa, HERE)}
    first = Gemm(isa="portable", m=1, k=1, n=n, epilogue=(Dequantize(), Bias(), step))
    kernels = [first, *(replace(first, isa=isa) for isa in sets.values())]
    x = np.concatenate([np.linspace(-12, 12, n - 8), [-1e4, 1e4, -80, 80, -126, 126, 0, 1e-6]])
    x = x.astype(np.float32)
    limit = bound if bound else 5e-7 * np.maximum(1, np.abs(x))
    exact, results = computed(step, x.astype(np.float64), []), []
    runner, scale = Runner(kernels), np.ones(n, np.float32)
    for i, kernel in enumerate(kernels):
        parts = kernel.pack(np.zeros((1, n), np.int8))
        (y,) = runner.run(i, np.zeros((1, 1), np.int8), parts["weights"], parts["init"], scale, x)
        assert (np.abs(y[0] - exact) <= limit).all()
        results.append(y.view(np.int32))
    for kernel, found in zip(kernels, results, strict=True):
        np.testing.assert_array_equal(found, results[0], err_msg=kernel.isa)


@pytest.mark.parametrize("isa", HERE)
def test_codes_of_a_function_are_of_numbers_in_its_bound(isa: str) -> None:
    n, scale, zero = 4096, np.float32(0.0213), -105
    steps = (Dequantize(), Bias(), Gelu(codes=True), Quantize(exact=False))
    kernel = Gemm(isa=isa, m=1, k=1, n=n, epilogue=steps)
    parts = kernel.pack(np.zeros((1, n), np.int8))
    x = np.linspace(-8, 8, n, dtype=np.float32)
    (y,) = Runner([kernel]).run(
        0,
        np.zeros((1, 1), np.int8),
        parts["weights"],
        parts["init"],
        np.ones(n, np.float32),
        x,
        np.array([scale]),
        np.array([zero], np.int32),
    )
    exact = np.minimum(computed(Gelu(), x, []), (127 - zero) * scale)
    found = (y[0].astype(np.float32) - zero) * scale
    assert (np.abs(found - exact) <= scale / 2 + 7e-5 + 2**-22 * np.abs(exact)).all()


@pytest.mark.parametrize("isa", HERE[:1])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(50, 403, 100), (23, 480, 33), (96, 512, 64)], ids=lambda v: str(v)
)
def test_epilogues_among_the_next_products(isa: str, m: int, k: int, n: int) -> None:
    """K long enough that a tile's epilogue runs between the products of the next."""
    ends = [(Quantize(),), (Bias(), Residual(), Quantize(unsigned=True, per_column=True))]
    kernels = [
        Gemm(isa=isa, m=m, k=k, n=n, epilogue=(Dequantize(), *end), unsigned=u, row_zero=z)
        for end, u, z in zip(ends, (True, False), (False, True), strict=True)
    ]
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        result, expected = run_and_compare(runner, i, kernel, i)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("isa", HERE[:1])
def test_float_functions_among_the_next_products(isa: str) -> None:
    """As above, with float results and several pieces of a row, each where it belongs."""
    steps: tuple[tuple[Step, float], ...] = ((Gelu(), 6e-5), (Silu(), 5e-7))
    kernels = [
        Gemm(
            isa=isa,
            m=23,
            k=403,
            n=200,
            epilogue=(Dequantize(), Bias(), step),
            cut=RegisterTile(*tile),
        )
        for (step, _), tile in zip(steps, ((5, 4), (6, 3)), strict=True)
    ]
    runner = Runner(kernels)
    for i, (_, bound) in enumerate(steps):
        result, expected = run_and_compare(runner, i, kernels[i], i)
        # What goes in is rounded to float32, too: a product and a sum.
        limit = bound + 5e-7 * np.maximum(1, np.abs(expected))
        assert np.ptp(expected) > 1 and (np.abs(result - expected) <= limit).all()


def test_quotients_next_to_halves_are_exact() -> None:
    """Among the next tile's products a quotient is one multiplication, where that is enough."""
    m, k, n, scale = 40, 512, 64, np.float32(3 * 2**-24 + 2**-2)
    kernel = Gemm(isa=HERE[0], m=m, k=k, n=n, epilogue=(Dequantize(), Bias(), Quantize()))
    rng = np.random.default_rng(0)
    lhs = np.zeros((m, k), np.int8)
    lhs[:, 0] = rng.integers(-128, 128, m)
    weight = np.ones((k, n), np.int8)
    half = np.arange(n, dtype=np.float32) * scale / 2
    bias = np.nextafter(half, np.float32([0, 1, -1] * n)[:n])
    bias[-3:] = np.nan, np.inf, -np.inf
    ones, zero = np.full(n, scale, np.float32), np.array([-7], np.int32)
    parts = kernel.pack(weight)
    operands = (ones, bias, np.array([scale]), zero)
    (result,) = Runner([kernel]).run(0, lhs, parts["weights"], parts["init"], *operands)
    steps = [[ones], [bias], [scale, zero]]
    with np.errstate(invalid="ignore"):
        expected = reference(kernel, lhs, weight, operands=steps)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "steps", [(Quantize(),), (Gelu(codes=True), Quantize(exact=False))], ids=["", "gelu"]
)
@pytest.mark.parametrize("isa", HERE)
def test_not_a_number_is_zero(isa: str, steps: tuple[Step, ...]) -> None:
    """NaN quantizes to the code of 0, as the formats say."""
    kernel = Gemm(isa=isa, m=1, k=1, n=16, epilogue=(Dequantize(), Bias(), *steps))
    parts = kernel.pack(np.zeros((1, 16), np.int8))
    bias = np.array([np.nan, np.inf, -np.inf, 0] * 4, np.float32)
    one = np.ones(1, np.float32)
    (y,) = Runner([kernel]).run(
        0,
        np.zeros((1, 1), np.int8),
        parts["weights"],
        parts["init"],
        np.ones(16, np.float32),
        bias,
        one,
        np.array([9], np.int32),
    )
    lowest = -128 if len(steps) == 1 else 9  # GELU of it is 0
    np.testing.assert_array_equal(y[0], np.array([9, 127, lowest, 9] * 4, np.int8))


def test_description_round_trips() -> None:
    kernel = Gemm(
        isa="avx2",
        m=3,
        k=5,
        n=7,
        row_zero=True,
        epilogue=(Dequantize(True), Bias(), Residual(), Clamp(0, None), Quantize()),
    )
    again = Kernel.from_json(kernel.to_json())
    assert again == kernel
    assert again.name == kernel.name


def test_steps_must_fit() -> None:
    with pytest.raises(InternalError, match="takes f32, gets i32"):
        Gemm(isa="avx2", m=1, k=1, n=1, epilogue=(Bias(),))


def test_wrong_declaration_is_refused() -> None:
    class Lying(Gemm):
        """Claims another family so that the registry stays unique."""

        family = "lying"

        @property
        def results(self):  # type: ignore[no-untyped-def]
            return self.operands[:1]

    del Kernel.registry["lying"]
    kernel = Lying(isa="portable", m=2, k=3, n=4)
    object.__setattr__(kernel, "family", "gemm")
    with pytest.raises(InternalError, match="kernel is"):
        linked([kernel])


def test_threads_give_the_same_bits() -> None:
    """Workgroups that share an edge write the same results there, in any order."""
    shapes = [(70, 100, 77), (129, 64, 200), (7, 300, 500)]
    kernels = [Gemm(isa=isa, m=m, k=k, n=n) for isa in HERE[:3] for m, k, n in shapes]
    runner, rng = Runner(kernels), np.random.default_rng(3)
    runner.load(runner.data, "local-task")
    for i, kernel in enumerate(kernels):
        lhs, weight = codes(rng, (kernel.m, kernel.k)), codes(rng, (kernel.k, kernel.n))
        parts = kernel.pack(weight)
        for _ in range(5):
            (y,) = runner.run(i, lhs, parts["weights"], parts["init"])
            np.testing.assert_array_equal(y, reference(kernel, lhs, weight))


@pytest.mark.parametrize("isa", ["avx2", "avx512_vnni", "amx_int8", "aarch64_dotprod"])
def test_packed_weights_are_unpacked(isa: str) -> None:
    """Every instruction set, on every machine: blocks, ranges and panels that overlap."""
    rng = np.random.default_rng(5)
    for m, k, n in [(5, 48, 1), (16, 64, 16), (700, 65, 33), (9, 130, 700), (64, 200, 1100)]:
        kernel, weight = Gemm(isa=isa, m=m, k=k, n=n), codes(rng, (k, n))
        assert kernel.on_tiles == (isa == "amx_int8")
        np.testing.assert_array_equal(kernel.unpack(kernel.pack(weight)["weights"]), weight)


@pytest.mark.parametrize("isa", [name for name in HERE if get_isa(name).lanes > 4])
def test_streams(isa: str) -> None:
    """Products of a row or two; the last panel overlaps, K has a rest."""
    drawn = [
        Gemm(isa=isa, m=m, k=70, n=300, cut=Streams(s), row_zero=True, column_zero=zero, rows=rows)
        for m, s, zero, rows in ((1, 4, False, None), (2, 4, True, None), (1, 2, True, Batch(2)))
    ]
    runner = Runner(drawn)
    for i, kernel in enumerate(drawn):
        np.testing.assert_array_equal(*run_and_compare(runner, i, kernel, i))
        weight = codes(np.random.default_rng(i), (70, 300))
        if kernel.batch == 1:
            packed = kernel.pack(weight)["weights"]
            np.testing.assert_array_equal(kernel.unpack(packed), weight)
