"""Integer kernels show their int8 product, on every instruction set, and float kernels none."""

from __future__ import annotations

import pytest

from jq.iree.dump.products import MultiplyAdd
from jq.iree.dump.reader import read_dump
from jq.kernels import ISAS, Attention, Gemm, Gemv, Kernel
from tests.kernels.harness import linked

INT8 = MultiplyAdd("i8", "i8", "i32")


def products(kernel: Kernel) -> set[MultiplyAdd]:
    """Multiplications in the dispatches of a kernel; some need more than one."""
    return {p for found in read_dump(linked([kernel])).kernels for p in found.products}


@pytest.mark.parametrize("isa", ISAS)
def test_integer_kernels(isa: str) -> None:
    assert INT8 in products(Gemm(isa=isa, m=32, k=128, n=64))
    assert INT8 in products(Gemm(isa=isa, m=5, k=64, n=33, unsigned=True, row_zero=True))
    assert INT8 in products(Gemv(isa=isa, m=1, k=128, n=64))


@pytest.mark.parametrize("isa", ISAS)
def test_float_attention(isa: str) -> None:
    kernel = Attention(
        isa=isa,
        batch=1,
        queries=16,
        keys=16,
        heads=2,
        kv_heads=2,
        dim=16,
        widths=(32, 32, 32),
        starts=(0, 0, 0),
        scale=0.25,
    )
    found = products(kernel)
    assert INT8 not in found
    assert {p.acc for p in found} == {"f32"}
