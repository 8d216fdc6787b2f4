"""Packed values are those that `Gemm.pack` makes of the same codes."""

from __future__ import annotations

import numpy as np
import pytest

from jq.kernels import Batch, Gemm, PackValues
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE

SHAPES = [  # m, k, n, outer, inner, transposed
    (128, 128, 32, 1, 12, False),
    (128, 32, 128, 1, 12, True),
    (9, 70, 37, 2, 3, False),
    (9, 53, 37, 2, 3, True),
    (20, 64, 5, 1, 1, True),
    (20, 131, 5, 1, 2, False),
    (33, 64, 600, 1, 2, True),
    (3, 7, 90, 1, 1, False),
]


def expected(kernel: PackValues, codes: np.ndarray, numbers: np.ndarray) -> list[np.ndarray]:
    """The result of `Gemm.pack` for the same codes as a constant weight."""
    gemm, last = kernel.gemm, (0, 2, 3, 1) if kernel.transposed else (0, 2, 1, 3)
    weight = codes.transpose(last).reshape(-1, gemm.k, gemm.n)
    bias = np.full((len(weight), gemm.n), numbers[1], np.int32)
    given = (weight[0], bias[0]) if gemm.batch == 1 else (weight, bias)
    packed = gemm.pack(*given, int(numbers[0]))
    return [packed["weights"], packed["init"]]


@pytest.mark.parametrize("isa", HERE)
def test_values_are_packed_as_weights(isa: str) -> None:
    rng, kernels = np.random.default_rng(3), []
    for m, k, n, outer, inner, transposed in SHAPES:
        count = outer * inner
        gemm = Gemm(isa=isa, m=m, k=k, n=n, rows=Batch(count) if count > 1 else None)
        kernels.append(
            PackValues(isa=isa, gemm=gemm, outer=outer, inner=inner, transposed=transposed)
        )
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        codes = rng.integers(-128, 128, kernel.operands[0].shape).astype(np.int8)
        numbers = np.array([rng.integers(-128, 128), rng.integers(-1000, 1000)], np.int32)
        found = runner.run(i, codes, numbers)
        for got, want in zip(found, expected(kernel, codes, numbers), strict=True):
            np.testing.assert_array_equal(got, want, f"{kernel.label} {SHAPES[i]}")
