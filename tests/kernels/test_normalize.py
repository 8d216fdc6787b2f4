"""Normalized rows against double precision, their codes against the formats, bit for bit."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st

from jq.kernels import Normalize
from jq.kernels.machine.isa import CHAINS
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE, sizes
from tests.kernels.test_quantize_rows import FLIP, expected, schemes
from tests.support.drawn import random_example

kernels = st.builds(
    Normalize,
    isa=st.sampled_from(HERE),
    m=sizes,
    k=sizes,
    epsilon=st.sampled_from([1e-5, 1e-12]),
    center=st.booleans(),
    gamma=st.booleans(),
    beta=st.booleans(),
    keep=st.just(True),
    scheme=st.one_of(st.none(), schemes),
)
factors = st.builds(lambda k: dataclasses.replace(k, factors=k.scheme is not None), kernels)


def reference(kernel: Normalize, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> tuple:
    """y in double precision, and the bound of its error that the kernel states."""
    wide = x.astype(np.float64)
    mean = wide.mean(1, keepdims=True) if kernel.center else np.zeros((kernel.m, 1))
    variance = np.square(wide - mean).mean(1, keepdims=True)
    root = np.sqrt(variance + kernel.epsilon)
    y = (wide - mean) / root * gamma + beta
    unit = 2.0**-24
    spread = (np.abs(wide).max(1, keepdims=True) + np.abs(mean)) / root
    sums = (kernel.k / (4 * CHAINS) + 12) * unit
    bound = sums * (2 + np.abs(mean) / root) * (1 + spread) * np.abs(gamma) + 4 * unit * np.abs(y)
    return y, bound + 4 * unit * np.abs(beta)


@random_example(st.lists(st.one_of(kernels, factors), min_size=8, max_size=8))
def test_every_shape(drawn: list[Normalize], seed: int) -> None:
    """Also without the float result: the codes are the same."""
    codes_only = [dataclasses.replace(k, keep=False) for k in drawn if k.scheme is not None]
    runner = Runner([*drawn, *codes_only])
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        x = (rng.standard_normal((kernel.m, kernel.k)) + rng.standard_normal()).astype(np.float32)
        gamma, beta = rng.standard_normal((2, kernel.k)).astype(np.float32)
        scale, point = np.array([0.013], np.float32), np.array([-7], np.int32)
        static = kernel.scheme is not None and not kernel.scheme.dynamic
        operands = [
            x,
            *([gamma] * kernel.gamma),
            *([beta] * kernel.beta),
            *([gamma] * kernel.factors),
            *([scale, point] * static),
        ]
        y, *parts = runner.run(i, *operands)
        one, zero = np.ones_like(gamma), np.zeros_like(beta)
        exact, bound = reference(
            kernel, x, gamma if kernel.gamma else one, beta if kernel.beta else zero
        )
        assert (np.abs(y - exact) <= bound).all(), kernel.to_json()
        if kernel.scheme is None:
            continue
        want = expected(y * gamma if kernel.factors else y, kernel.scheme, scale, -7)
        again = runner.run(
            len(drawn) + codes_only.index(dataclasses.replace(kernel, keep=False)), *operands
        )
        for got in (parts, again):
            if kernel.scheme.unsigned:
                got[0] = got[0] ^ FLIP
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b.reshape(a.shape), err_msg=kernel.to_json())
