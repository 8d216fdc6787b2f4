"""The benchmark of kernels, on every kernel that it times."""

from __future__ import annotations

import pytest

from scripts.benchmarks.kernels import FAMILIES, operations


@pytest.mark.parametrize("family", FAMILIES)
def test_operations_are_known(family: str) -> None:
    kernels = list(FAMILIES[family]("avx2"))
    assert kernels
    assert all(operations(kernel) > 0 for kernel in kernels)
