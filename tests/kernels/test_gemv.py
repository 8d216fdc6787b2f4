"""Block-scaled products: exact where every operation is, else within the stated bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import Bias, Gemv, Residual, Scale, Step, ZeroPoint
from jq.kernels.gemv.description import SCALES
from jq.kernels.gemv.layout import PLANES
from jq.kernels.machine.isa import get_isa
from tests.kernels.harness import Runner
from tests.kernels.references import reference
from tests.kernels.strategies import HERE, codes, sizes
from tests.support.drawn import random_example


def build(bits: int, offset: str, scale: str, blocks: int, outer: int, **rest: Any) -> Gemv:
    return Gemv(
        bits=bits,
        minimum=offset == "minimum" and bits < 8 and scale != "column",
        zero=offset == "zero" and bits <= 4 and scale in ("f16", "f32"),
        scale=scale,
        block=blocks * Gemv.least_block(bits),
        outer=outer if scale == "i8" else 0,
        **rest,
    )


kernels = st.builds(
    build,
    bits=st.sampled_from(sorted(PLANES)),
    offset=st.sampled_from(["", "minimum", "zero"]),
    isa=st.sampled_from(HERE),
    m=st.one_of(st.integers(1, 9), st.sampled_from([16, 17, 40])),
    k=sizes,
    n=sizes,
    blocks=st.sampled_from([1, 2, 4]),
    per_block=st.booleans(),
    digits=st.sampled_from([1, 1, 2, 3]),
    scale=st.sampled_from(SCALES),
    outer=st.sampled_from([1, 2, 8]),
    epilogue=st.sampled_from(
        [(), (Bias(),), (Residual(), Bias()), (ZeroPoint(),), (ZeroPoint(), Scale())]
    ),
)


def weights(rng: np.random.Generator, kernel: Gemv) -> np.ndarray:
    if kernel.bits == 8:
        return codes(rng, (kernel.k, kernel.n))
    count = 1 << kernel.bits
    low = 0 if kernel.minimum or kernel.zero else -count // 2
    values = rng.integers(low, low + count, (kernel.k, kernel.n))
    extreme = rng.choice([low, low + count - 1], values.shape)
    return np.where(rng.random(values.shape) < 0.3, extreme, values).astype(np.int8)


def run(runner: Runner, i: int, kernel: Gemv, rng: np.random.Generator, exact: bool) -> tuple:
    """Result, reference, and the sum of magnitudes that the bound is relative to."""
    split = (kernel.digits,) if kernel.digits > 1 else ()
    x, w = codes(rng, (kernel.m, *split, kernel.k)), weights(rng, kernel)
    if split and exact:  # numbers below 2^9: sums below 2^24
        x[:, :-2], x[:, -2] = 0, x[:, -2] >> 7
    elif split:
        x[:, 0] = x[:, 0].clip(-63, 63)
    grid = (kernel.blocks, kernel.n)
    rows = (kernel.m, kernel.blocks) if kernel.per_block else (kernel.m,)

    def factors(shape: tuple[int, ...]) -> np.ndarray:
        return np.ones(shape) if exact else rng.uniform(0.01, 1, shape)

    def scales(sign: int) -> Any:
        if kernel.scale == "column":
            return factors((1, kernel.n)).astype(np.float32)
        if not kernel.outer:
            return (sign * factors(grid)).astype(
                np.dtype(kernel.scale.replace("f", "float").replace("i", "int"))
            )
        integers = np.ones(grid) if exact else rng.integers(-128, 128, grid)
        return integers.astype(np.int8), (
            sign * factors((-(-kernel.blocks // kernel.outer), kernel.n))
        ).astype("f2")

    zero = rng.integers(0, 1 << kernel.bits, grid).astype(np.int8) if kernel.zero else None
    scale, minimum = scales(1), scales(-1) if kernel.minimum else None
    row_scale = factors(rows).astype(np.float32)
    steps = []
    shapes = {"column": (1, kernel.n), "row": (kernel.m, 1), "element": (kernel.m, kernel.n)}
    for step in kernel.epilogue:
        kinds = [shapes[how] for how, _ in step.operands]
        steps.append([rng.integers(-9, 9, shape).astype(np.float32) for shape in kinds])
    if kernel.scale == "column":
        operands = [x, row_scale, kernel.pack(w), kernel.pad_columns(scale[0])]
    else:
        operands = [x, row_scale, kernel.pack(w, scale, minimum, zero)]
    for step, arrays in zip(kernel.epilogue, steps, strict=True):
        for (how, _), array in zip(step.operands, arrays, strict=True):
            flat = array[:, 0] if how == "row" else array
            operands.append(kernel.pad_columns(array[0]) if how == "column" else flat)
    (y,) = runner.run(i, *operands)
    want = reference(kernel, x, row_scale, w, scale, minimum, steps, zero)
    size = reference(
        kernel,
        np.abs(x.astype(np.int16)),
        row_scale,
        np.abs(w.astype(np.int16)),
        magnitude(scale),
        None if minimum is None else magnitude(minimum),
        [magnitudes(s, a) for s, a in zip(kernel.epilogue, steps, strict=True)],
        None if zero is None else -zero.astype(np.int16),
    )
    return y, want, size


def magnitudes(step: Step, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Operands with which a step adds what it changes a number by at most."""
    sign = -1 if isinstance(step, ZeroPoint) else 1
    return [sign * np.abs(arrays[0]), *map(np.abs, arrays[1:])]


def magnitude(scale: Any) -> Any:
    if isinstance(scale, tuple):
        return tuple(np.abs(part.astype(np.float32)) for part in scale)
    return np.abs(scale)


@random_example(st.lists(kernels, min_size=8, max_size=8))
def test_every_shape(drawn: list[Gemv], seed: int) -> None:
    """With scales of 1 every sum is an integer below 2^24: equal bits."""
    runner = Runner(drawn)
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        y, want, _ = run(runner, i, kernel, rng, exact=True)
        np.testing.assert_array_equal(y, want, err_msg=kernel.to_json())
        y, want, size = run(runner, i, kernel, rng, exact=False)
        bound = (2 * kernel.blocks + 4 + len(kernel.epilogue)) * 2.0**-24 * size
        assert (np.abs(y - want) <= bound).all(), kernel.to_json()


def test_the_largest_sums_do_not_saturate() -> None:
    """Every product at its extreme, in blocks longer than what sums in 16 bits hold."""
    names = [name for name in HERE if get_isa(name).pairs]
    kernels = [
        Gemv(isa=name, m=1, k=384, n=16, bits=bits, block=384, minimum=True)
        for name in names
        for bits in PLANES
        if bits < 8
    ]
    if not kernels:
        pytest.skip("no instruction set here adds products in 16 bits")
    assert {k.unit.dot.sums for k in kernels} == {42, 18, 8, 4, 2}
    runner, ones = Runner(kernels), np.ones((1, 16))
    for i, kernel in enumerate(kernels):
        largest = (1 << kernel.bits) - 1
        packed = kernel.pack(np.full((384, 16), largest, np.int8), ones, 0 * ones)
        for code in (-128, 127):
            x = np.full((1, 384), code, np.int8)
            (y,) = runner.run(i, x, np.ones((1, 1), np.float32), packed)
            np.testing.assert_array_equal(y, np.float32(384 * code * largest), kernel.to_json())


def test_codes_out_of_range_are_refused() -> None:
    kernel = Gemv(isa="portable", m=1, k=32, n=16)
    with pytest.raises(InternalError, match="do not fit"):
        kernel.pack(np.full((32, 16), 8, np.int8), np.ones((1, 16)))


FIVE = {"bits": 5, "scale": "f16"}
TWO_LEVELS = {"bits": 4, "scale": "i8", "outer": 8, "minimum": True}
ALIKE = [
    ("amx_int8", FIVE),
    ("amx_int8", TWO_LEVELS),
    ("avx512_vnni", FIVE),
    ("avx512_vnni", TWO_LEVELS),
    ("avx2", FIVE),
    ("avx2", TWO_LEVELS),
    ("sse2", FIVE),
    ("avx512_vnni", FIVE | {"digits": 2}),
    ("avx512_vnni", TWO_LEVELS | {"digits": 2}),
]


def test_weights_lie_alike_for_any_number_of_rows() -> None:
    """One array of weights, and equal bits of a row alone, among some, and among many."""
    cases = [(isa, format) for isa, format in ALIKE if isa in HERE]
    if not cases:
        pytest.skip("none of these instruction sets is here")
    counts = (1, 3, 17)
    runner = Runner(
        [Gemv(isa=isa, m=m, k=320, n=208, **format) for isa, format in cases for m in counts]
    )
    rng = np.random.default_rng(0)
    for number, (isa, format) in enumerate(cases):
        one, _, many = kernels = [Gemv(isa=isa, m=m, k=320, n=208, **format) for m in counts]
        assert many.decoded == (isa != "sse2") and many.tiled == (isa == "amx_int8")
        split = (one.digits,) if one.digits > 1 else ()
        x, w = codes(rng, (17, *split, 320)), weights(rng, one)
        scale: Any = rng.uniform(0.01, 1, (one.blocks, one.n)).astype(np.float16)
        if one.outer:
            factors = rng.uniform(0.01, 1, (-(-one.blocks // 8), one.n)).astype(np.float16)
            scale = rng.integers(-63, 64, (one.blocks, one.n)).astype(np.int8), factors
        packed = [k.pack(w, scale, scale if one.minimum else None) for k in kernels]
        assert all(np.array_equal(packed[0], p) for p in packed)
        row_scale = rng.uniform(0.01, 1, (17, one.blocks)).astype(np.float32)
        (whole,) = runner.run(3 * number + 2, x, row_scale, packed[0])
        for i, m in enumerate(counts[:2]):
            for row in (0, 7, 14):
                part = slice(row, row + m)
                (found,) = runner.run(3 * number + i, x[part], row_scale[part], packed[0])
                assert np.array_equal(found, whole[part]), (isa, format, m)


def test_rows_of_a_prompt_are_in_equal_shares() -> None:
    """No row is computed twice, and codes are not taken out again for the sake of a second thread:
    two threads of 44 workgroups are uneven by less than 4 shares of the rows cost."""
    form = {"isa": "avx512_vnni", "k": 2048, **TWO_LEVELS}
    for m, n in ((128, 5632), (100, 640), (513, 256), (17, 64), (2000, 2048)):
        kernel = Gemv(m=m, n=n, **form)
        blocks = -(-m // kernel.row_block)
        assert blocks * kernel.row_block - m < blocks, (m, n)
    assert Gemv(m=128, n=5632, **form).row_block == 128
    assert Gemv(m=128, n=256, **form).row_block == 32  # two workgroups of columns are too few


ON_TILES: list[dict[str, Any]] = [
    {"bits": 8, "scale": "f16"},
    {"bits": 6, "block": 16, "scale": "i8", "outer": 16},
    {**TWO_LEVELS, "per_block": False},
    {"block": 128, "zero": True, "scale": "f16"},
    {"block": 64, "scale": "column"},
]


def test_few_workgroups_are_an_even_number() -> None:
    """640 columns are five times eight vectors: one of two threads would compute three fifths."""
    form: dict[str, Any] = {"isa": "avx512_vnni", "m": 1, "k": 1024, "scale": "f16"}
    cut = {n: Gemv(n=n, **form) for n in (128, 256, 384, 640, 1152, 2048)}
    assert [g.workgroups for g in cut.values()] == [1, 2, 6, 10, 9, 16]
    assert [cut[n].streams for n in (256, 384, 640)] == [4, 2, 2]


def test_matrix_tiles_give_the_bits_of_vectors() -> None:
    """Blocks of less than a tile, of one and of two; rows and blocks that are no whole number of
    tiles and runs."""
    if "amx_int8" not in HERE:
        pytest.skip("no matrix tiles here")
    pairs = [
        [Gemv(isa=isa, m=41, k=1280, n=72, **form) for isa in ("amx_int8", "avx512_vnni")]
        for form in ON_TILES
    ]
    runner, rng = Runner([kernel for pair in pairs for kernel in pair]), np.random.default_rng(0)
    for i, (tiles, vectors) in enumerate(pairs):
        assert tiles.tiled and not vectors.tiled
        seed = int(rng.integers(1 << 30))
        found = [
            run(runner, 2 * i + j, kernel, np.random.default_rng(seed), exact=False)[0]
            for j, kernel in enumerate((tiles, vectors))
        ]
        np.testing.assert_array_equal(*found, err_msg=tiles.to_json())


STACKS = {
    "q8_0": {"bits": 8, "scale": "f16", "block": 32},
    "q4_k": {"bits": 4, "scale": "i8", "block": 32, "outer": 2, "minimum": True},
}


@pytest.mark.parametrize("name", STACKS)
def test_tiles_of_rows_take_weights_of_a_stack(name: str) -> None:
    """Bits of the products one by one; the epilogue of 0 where a tile has no weight."""
    chosen, rng = np.array([2, 0, 3, 0, 2], np.int32), np.random.default_rng(0)
    count, (k, n) = 3, (640, 72)
    form: Any = {"k": k, "n": n, "epilogue": (Bias(),), **STACKS[name]}
    isas = [isa for isa in ("amx_int8", "avx512_vnni", "avx2") if isa in HERE]
    cases = [(isa, height) for isa in isas for height in (1, 16)]
    stacks = [
        Gemv(isa=isa, m=height * len(chosen), stack=count, tiles=len(chosen), **form)
        for isa, height in cases
    ]
    singles = [Gemv(isa=isa, m=height, **form) for isa, height in cases]
    runner = Runner([*stacks, *singles])
    drawn = [weights(rng, singles[0]) for _ in range(count)]
    for i, (stack, single) in enumerate(zip(stacks, singles, strict=True)):
        grid = (single.blocks, n)
        scale: Any = rng.uniform(0.01, 1, grid).astype("f2")
        if single.outer:
            factors = rng.uniform(0.01, 1, (single.blocks // 2, n)).astype("f2")
            scale = rng.integers(-128, 128, grid).astype(np.int8), factors
        packed = [single.pack(w, scale, scale if single.minimum else None) for w in drawn]
        x, x_scale = codes(rng, (stack.m, k)), rng.uniform(0.01, 1, (stack.m, single.blocks))
        bias = single.pad_columns(rng.normal(0, 1, n).astype(np.float32))
        x_scale = x_scale.astype(np.float32)
        (got,) = runner.run(i, x, x_scale, np.concatenate(packed), chosen, bias)
        for tile, which in enumerate(chosen):
            rows = slice(tile * single.m, (tile + 1) * single.m)
            want = np.broadcast_to(bias[:n], (single.m, n))
            if which < count:
                one = runner.run(len(stacks) + i, x[rows], x_scale[rows], packed[which], bias)
                (want,) = one
            np.testing.assert_array_equal(got[rows], want, err_msg=stack.to_json())
