"""Attention against double precision, within what its roundings allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import Attention, Quantize, get_isa
from tests.kernels.harness import Runner
from tests.kernels.references import head, reference, softmax
from tests.kernels.strategies import HERE
from tests.support.drawn import random_example


def precisions(isa: str) -> list[str]:
    return ["f32", "bf16"] if get_isa(isa).multiplies_bf16 else ["f32"]


@st.composite
def kernels(draw: st.DrawFn) -> Attention:
    isa = draw(st.sampled_from(HERE))
    dim = draw(st.sampled_from([1, 3, 8, 16, 20, 32, 64]))
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)]))
    heads = kv_heads * group
    total = (heads + 2 * kv_heads) * dim
    fused = draw(st.booleans())
    starts = (0, heads * dim, (heads + kv_heads) * dim) if fused else (0, 0, 0)
    widths = (total,) * 3 if fused else (heads * dim, kv_heads * dim, kv_heads * dim + 5)
    sizes = st.one_of(st.sampled_from([1, 2, 15, 16, 17, 33, 48]), st.integers(1, 70))
    queries = draw(sizes)
    return Attention(
        isa=isa,
        batch=draw(st.integers(1, 2)),
        queries=queries,
        keys=queries if fused else draw(sizes),
        heads=heads,
        kv_heads=kv_heads,
        dim=dim,
        widths=widths,
        starts=starts,
        scale=draw(st.sampled_from([1.0, 0.25])) / np.sqrt(dim),
        mask=draw(st.sampled_from(["none", "keys", "full"])),
        precision=draw(
            st.sampled_from(["f32", "bf16"] if get_isa(isa).multiplies_bf16 else ["f32"])
        ),
    )


def inputs(rng: np.random.Generator, kernel: Attention) -> list[np.ndarray]:
    operands = [rng.standard_normal(t.shape).astype(np.float32) for t in kernel.operands]
    if kernel.starts[1]:
        operands[1] = operands[2] = operands[0]
    if kernel.mask != "none":
        hidden = rng.random(operands[3].shape) < 0.4
        hidden[..., 0] = False
        operands[3] = np.where(hidden, rng.choice([-np.inf, -1e9, -3e38]), 0).astype(np.float32)
    return operands


def bound(kernel: Attention, operands: list[np.ndarray]) -> float:
    """With e the rounding of an operand: a score moves by 2 e |q||k| scale, a probability by that
    (relative, twice: also its sum), the products with v by e each; f32 sums add K u.
    """
    q, k, v = (np.abs(o).max() for o in operands[:3])
    rounding = 2.0**-9 if kernel.precision == "bf16" else 2.0**-24
    sums = (kernel.dim + kernel.keys + 16) * 2.0**-24
    score = (2 * rounding + sums) * q * k * kernel.dim * kernel.scale
    return float((2 * score + 2 * rounding + 2 * sums + 1e-6) * v * 1.1)


@random_example(st.lists(kernels(), min_size=7, max_size=7))
def test_every_shape(drawn: list[Attention], seed: int) -> None:
    runner = Runner(drawn)
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        operands = inputs(rng, kernel)
        (y,) = runner.run(i, *operands)
        want = reference(kernel, *operands)
        error = np.abs(y - want).max()
        assert error <= bound(kernel, operands), (kernel.to_json(), error)


PRECISIONS = [
    (isa, p) for isa in HERE for p in ("f32", "bf16") if p == "f32" or get_isa(isa).multiplies_bf16
]


@pytest.mark.parametrize(("isa", "precision"), PRECISIONS)
def test_error_of_usual_data(isa: str, precision: str) -> None:
    """Standard normal q, k, v: the root mean square error is that of the operands' rounding."""
    kernel = Attention(
        isa=isa,
        batch=1,
        queries=40,
        keys=40,
        heads=2,
        kv_heads=2,
        dim=32,
        widths=(64, 64, 64),
        starts=(0, 0, 0),
        scale=32**-0.5,
        precision=precision,
    )
    operands = inputs(np.random.default_rng(0), kernel)
    (y,) = Runner([kernel]).run(0, *operands)
    error = np.sqrt(np.square(y - reference(kernel, *operands)).mean())
    # Each of about three roundings is uniform within half a step of 2^-8 (2^-23), so 2^-9 / sqrt 3.
    unit = 2.0**-9 if precision == "bf16" else 2.0**-24
    assert error < 3 * unit


def extremes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A mask whose last axis is a row each: of one number, of two, of any bits of a float32."""
    numbers = rng.choice(np.array(NUMBERS, np.float32), (*shape[:-1], 2))
    some = np.where(rng.random(shape) < 0.5, numbers[..., :1], numbers[..., 1:])
    bits = rng.integers(0, 2**32, shape, np.uint32).view(np.float32)
    kind = rng.integers(0, 3, shape[:-1])[..., None]
    return np.select([kind == 0, kind == 1], [np.broadcast_to(numbers[..., :1], shape), some], bits)


LOWEST = float(np.finfo(np.float32).min)
NUMBERS = (LOWEST, 0.7 * LOWEST, -2.3e38, -2.4e38, -1e30, -1e9, -1e4, -100, 0, 100, 1e9, -LOWEST)
NUMBERS += (-np.inf, np.inf, np.nan)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@random_example(st.integers(0))
def test_masks_and_scores_of_all_of_float32(drawn: int, seed: int) -> None:
    """Finite results are those of float32: nothing overflows on its way. Scores are
    sums of few bits, so that they are exact."""
    rng, kernels = np.random.default_rng(seed), []
    for isa, precision in PRECISIONS:
        for queries, mask, fill in ((1, "full", None), (17, "full", None), (17, "none", None)):
            if mask == "full":
                fill = rng.choice([None, LOWEST, 0.7 * LOWEST, -np.inf])
            shape = {"batch": 2, "heads": 2, "kv_heads": 1, "dim": 8, "widths": (16, 8, 8)}
            shape |= {"isa": isa, "precision": precision, "starts": (0, 0, 0), "scale": 0.25}
            keys = int(rng.choice([16, 21, 32]))
            kernels.append(Attention(queries=queries, keys=keys, mask=mask, fill=fill, **shape))
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        for powers in ((0, 0), (60, 60), (61, 61), (125, -120)):
            q, k, v = (rng.integers(-2, 3, t.shape).astype(np.float32) for t in kernel.operands[:3])
            q, k = (np.ldexp(x, p).astype(np.float32) for x, p in zip((q, k), powers, strict=True))
            q[0, 0, 0], k[1, 3, 2] = rng.choice([1, np.nan, np.inf, -np.inf], 2)
            mask = [extremes(rng, t.shape) for t in kernel.masks]
            if kernel.fill is not None:  # of what is hidden nothing is seen
                mask = [np.where(m < 0, LOWEST, 0).astype(np.float32) for m in mask]
            (y,) = runner.run(i, q, k, v, *mask)
            want = single(kernel, q, k, v, *mask)
            assert np.array_equal(np.isnan(y), np.isnan(want)), (kernel.to_json(), powers)
            bounded = replace(kernel, mask="none", fill=None), [np.ones(1), np.ones(1), v]
            error = np.abs(y - want)[~np.isnan(want)]
            assert (error <= bound(*bounded)).all(), (kernel.to_json(), powers, error.max())


def single(kernel: Attention, q: np.ndarray, k: np.ndarray, v: np.ndarray, *mask: np.ndarray):
    """The attention whose scores are float32 at every step."""
    outs = []
    for h in range(kernel.heads):
        left, right, values = (head(kernel, x, i, h) for i, x in enumerate((q, k, v)))
        scores = np.float32(np.float64(left) @ right.transpose(0, 2, 1).astype(float))
        scores = scores * np.float32(kernel.scale)
        outs.append(softmax(kernel, scores, mask[0] if mask else None, kernel.fill) @ values)
    return np.concatenate(outs, -1)


def test_static_codes_and_hidden_rows() -> None:
    """The epilogue quantizes; a row that sees no key is not a number, so code 0."""
    kernel = Attention(
        isa=HERE[0],
        batch=1,
        queries=3,
        keys=5,
        heads=1,
        kv_heads=1,
        dim=4,
        widths=(4, 4, 4),
        starts=(0, 0, 0),
        scale=0.5,
        mask="full",
        epilogue=(Quantize(),),
    )
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, n, 4)).astype(np.float32) for n in (3, 5, 5))
    mask = np.zeros((1, 3, 5), np.float32)
    mask[0, 1] = -np.inf
    scale = np.array([0.01], np.float32)
    (y,) = Runner([kernel]).run(0, q, k, v, mask, scale, np.array([7], np.int32))
    with np.errstate(invalid="ignore"):
        exact = reference(kernel, q, k, v, mask) / scale
    exact[0, 1] = 0
    assert (np.abs(y - 7 - np.clip(exact, -135, 120)) <= 0.5 + 1e-3).all()


@pytest.mark.parametrize("isa", [isa for isa in ("avx512_vnni", "avx2") if isa in HERE])
def test_keys_that_are_hidden_are_not_read(isa: str) -> None:
    """A causal mask with a window, on a cache with room: what lies beyond is NaN, and rows alone or
    in pairs have the bits that they have together."""
    heads, dim, rows, room = 4, 20, 32, 96
    one = Attention(
        isa=isa,
        batch=1,
        queries=1,
        keys=room,
        heads=heads,
        kv_heads=1,
        dim=dim,
        widths=(heads * dim, dim, dim),
        starts=(0, 0, 0),
        scale=0.3,
        mask="full",
    )
    many = replace(one, queries=rows)
    assert one.few and one.skips and many.skips and not many.few
    kernels = {n: replace(one, queries=n) for n in (1, 2, rows)}
    runner, index = Runner(list(kernels.values())), dict(zip(kernels, range(3), strict=True))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(t.shape).astype(np.float32) for t in kernels[rows].operands[:3])
    here, there = np.arange(rows)[:, None] + 24, np.arange(room)
    seen = (there <= here) & (there > here - 8)
    mask = np.where(seen, 0, -np.inf).astype(np.float32)[None]
    hidden = ~seen.any(0).reshape(-1, 16).any(1).repeat(16)  # whole chains of a sum
    want = reference(many, q, k, v, mask)
    k[:, hidden], v[:, hidden] = np.nan, np.nan
    (y,) = runner.run(index[rows], q, k, v, mask)
    assert np.abs(y - want).max() <= bound(many, [q, k[:, ~hidden], v[:, ~hidden]])
    k[:, :16], v[:, :16] = np.nan, np.nan  # after the window of the later rows
    for count in (1, 2):
        for row in range(16 + 8, rows - count + 1, 3 - count):
            part = slice(row, row + count)
            (few,) = runner.run(index[count], q[:, part], k, v, mask[:, part])
            assert np.array_equal(few, y[:, part])
    # Nothing in between is shown: the first keys and a window.
    k, v = np.nan_to_num(k, nan=1.0), np.nan_to_num(v, nan=1.0)
    mask = np.where(there < 4, 0, np.where(there == here + 40, 0, -np.inf)).astype(np.float32)[None]
    (y,) = runner.run(index[rows], q, k, v, mask)
    (few,) = runner.run(index[1], q[:, 30:31], k, v, mask[:, 30:31])
    assert np.array_equal(few, y[:, 30:31])
    assert np.abs(y - reference(many, q, k, v, mask)).max() <= bound(many, [q, k, v])


@pytest.mark.parametrize(("keys", "shown"), [(512, 70), (512, 512), (520, 300), (2048, 1025)])
def test_a_token_reads_all_keys_that_are_shown(keys: int, shown: int) -> None:
    """Workgroups take keys from all over the cache, and each of them once."""
    kernel = Attention(
        isa=HERE[0],
        batch=1,
        queries=1,
        keys=keys,
        heads=2,
        kv_heads=1,
        dim=8,
        widths=(16, 8, 8),
        starts=(0, 0, 0),
        scale=0.3,
        mask="keys",
    )
    operands = inputs(np.random.default_rng(0), kernel)
    operands[3] = np.where(np.arange(keys) < shown, 0, -np.inf).astype(np.float32)[None]
    (y,) = Runner([kernel]).run(0, *operands)
    assert np.abs(y - reference(kernel, *operands)).max() <= bound(kernel, operands)


def test_what_does_not_fit_is_refused() -> None:
    shape = {"batch": 1, "queries": 1, "keys": 1, "heads": 2, "dim": 8, "scale": 1.0}
    with pytest.raises(InternalError, match="leave 15 columns"):
        Attention(isa="avx2", kv_heads=2, widths=(16, 16, 15), starts=(0, 0, 0), **shape)
    with pytest.raises(InternalError, match="no bf16"):
        Attention(
            isa="avx2", kv_heads=2, widths=(16, 16, 16), starts=(0, 0, 0), precision="bf16", **shape
        )
