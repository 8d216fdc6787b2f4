"""Softmax against double precision, its codes against the formats."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jq.kernels import Softmax
from jq.kernels.machine.isa import CHAINS
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE, sizes
from tests.kernels.test_quantize_rows import FLIP, expected, schemes

kernels = st.builds(
    Softmax,
    isa=st.sampled_from(HERE),
    batch=st.integers(1, 2),
    heads=st.integers(1, 3),
    queries=st.integers(1, 20),
    k=sizes,
    mask=st.sampled_from(["none", "keys", "full"]),
    factor=st.sampled_from([1.0, 0.125]),
    scheme=st.one_of(st.none(), schemes),
)


@given(st.lists(kernels, min_size=8, max_size=8), st.integers(0, 2**32))
@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_shape(drawn: list[Softmax], seed: int) -> None:
    runner = Runner(drawn)
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        x = (rng.standard_normal((kernel.m, kernel.k)) * 5).astype(np.float32)
        operands, mask = [x], None
        if kernel.mask != "none":
            mask = np.where(rng.random(kernel.operands[1].shape) < 0.3, -1e30, 0)
            mask = mask.astype(np.float32)
            mask[:, 0] = rng.choice([0.0, -np.inf]) if kernel.k > 1 else 0
            mask[:, -1] = 0
            operands.append(mask)
        scale = np.array([1 / 255], np.float32)
        if kernel.scheme is not None and not kernel.scheme.dynamic:
            operands += [scale, np.array([-100], np.int32)]
        y, *parts = runner.run(i, *operands)
        want = kernel.reference(x, mask)
        # s moves by a rounding or two of its size, which moves e^s by as much, relatively.
        size = np.abs(x).max() * kernel.factor
        bound = (kernel.k / CHAINS + 40 + 3 * size) * 2.0**-24 + 2e-7
        assert (np.abs(y - want) <= bound * want + 1e-37).all(), kernel.to_json()
        if kernel.scheme is None:
            continue
        if kernel.scheme.unsigned:
            parts[0] = parts[0] ^ FLIP
        for a, b in zip(parts, expected(y, kernel.scheme, scale, -100), strict=True):
            np.testing.assert_array_equal(a, b.reshape(a.shape), err_msg=kernel.to_json())


def test_a_row_without_a_key_is_not_a_number() -> None:
    kernel = Softmax(isa=HERE[0], batch=1, heads=1, queries=3, k=5, mask="full")
    x, mask = np.zeros((3, 5), np.float32), np.zeros((3, 5), np.float32)
    mask[1] = -np.inf
    (y,) = Runner([kernel]).run(0, x, mask)
    assert np.isnan(y[1]).all()
    np.testing.assert_allclose(y[[0, 2]], 0.2, rtol=1e-6)
