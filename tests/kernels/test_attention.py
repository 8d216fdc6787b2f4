"""Attention against double precision, within what its roundings allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jq.errors import InternalError
from jq.kernels import Attention, Quantize, get_isa
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE


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
    sizes = st.one_of(st.sampled_from([1, 2, 15, 16, 17, 33]), st.integers(1, 70))
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


@given(st.lists(kernels(), min_size=7, max_size=7), st.integers(0, 2**32))
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_shape(drawn: list[Attention], seed: int) -> None:
    runner = Runner(drawn)
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        operands = inputs(rng, kernel)
        (y,) = runner.run(i, *operands)
        want = kernel.reference(*operands)
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
    error = np.sqrt(np.square(y - kernel.reference(*operands)).mean())
    # Each of about three roundings is uniform within half a step of 2^-8 (2^-23), so 2^-9 / sqrt 3.
    unit = 2.0**-9 if precision == "bf16" else 2.0**-24
    assert error < 3 * unit


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
        exact = kernel.reference(q, k, v, mask) / scale
    exact[0, 1] = 0
    assert (np.abs(y - 7 - np.clip(exact, -135, 120)) <= 0.5 + 1e-3).all()


def test_what_does_not_fit_is_refused() -> None:
    shape = {"batch": 1, "queries": 1, "keys": 1, "heads": 2, "dim": 8, "scale": 1.0}
    with pytest.raises(InternalError, match="leave 15 columns"):
        Attention(isa="avx2", kv_heads=2, widths=(16, 16, 15), starts=(0, 0, 0), **shape)
    with pytest.raises(InternalError, match="no bf16"):
        Attention(
            isa="avx2",
            kv_heads=2,
            widths=(16, 16, 16),
            starts=(0, 0, 0),
            precision="bf16",
            **shape,
        )
