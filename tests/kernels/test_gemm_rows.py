"""A product whose rows are normalized or quantized: the bits of both kernels in turn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import (
    Batch,
    Bias,
    Dequantize,
    Gelu,
    Gemm,
    GemmRows,
    Kernel,
    Normalize,
    QuantizedResidual,
    QuantizeRows,
    Residual,
)
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE
from tests.kernels.test_quantize_rows import schemes
from tests.support.drawn import random_example

EPILOGUES = (
    (Dequantize(),),
    (Dequantize(per_row=True), Bias(), Residual()),
    (Dequantize(), Bias(), QuantizedResidual()),
    (Dequantize(), Gelu()),
)


@st.composite
def kernels(draw: st.DrawFn) -> GemmRows:
    isa, m, n = draw(st.sampled_from(HERE)), draw(st.integers(64, 150)), draw(st.integers(1, 90))
    gemm = Gemm(
        isa=isa,
        m=m,
        k=draw(st.integers(1, 70)),
        n=n,
        unsigned=draw(st.booleans()),
        row_zero=draw(st.booleans()),
        epilogue=draw(st.sampled_from(EPILOGUES)),
    )
    scheme = draw(schemes)
    if draw(st.booleans()):
        second = QuantizeRows(isa=isa, m=m, k=n, scheme=scheme)
        return GemmRows(isa=isa, gemm=gemm, quantize=second)
    keep = draw(st.booleans())
    found = Normalize(isa=isa, m=m, k=n, keep=keep, scheme=scheme if not keep else None)
    if keep and draw(st.booleans()):
        found = dataclasses.replace(found, scheme=scheme)
    return GemmRows(isa=isa, gemm=gemm, normalize=found)


def values(kernel: Kernel, rng: np.random.Generator) -> list[np.ndarray]:
    """Operands of any kind: what they say does not matter, only that both ways agree."""
    found = []
    for kind in kernel.operands:
        if kind.element == "f32":
            found.append((rng.random(kind.shape) * 0.1 + 0.01).astype(np.float32))
        else:
            found.append(rng.integers(-128, 128, kind.shape).astype(kind.dtype))
    return found


@random_example(st.lists(kernels().filter(lambda k: not k.gemm.on_tiles), min_size=6, max_size=6))
def test_the_bits_of_both_behind_each_other(drawn: list[GemmRows], seed: int) -> None:
    runner = Runner([part for k in drawn for part in (k, k.gemm, k.second)])
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        operands, own = values(kernel, rng), len(kernel.gemm.operands)
        (product,) = runner.run(3 * i + 1, *operands[:own])
        expected = runner.run(3 * i + 2, product, *operands[own:])
        for found, wanted in zip(runner.run(3 * i, *operands), expected, strict=True):
            np.testing.assert_array_equal(found, wanted, strict=True)


def test_its_description_survives() -> None:
    gemm = Gemm(isa=HERE[-1], m=128, k=32, n=48, epilogue=EPILOGUES[1])
    kernel = GemmRows(isa=gemm.isa, gemm=gemm, normalize=Normalize(isa=gemm.isa, m=128, k=48))
    assert Kernel.from_json(kernel.to_json()) == kernel


def test_rows_that_are_not_worth_keeping() -> None:
    gemm = Gemm(isa="avx2", m=128, k=384, n=384, epilogue=EPILOGUES[0])
    assert GemmRows.fits(gemm)
    for other in ({"m": 16}, {"n": 20000}, {"k": 1 << 15}, {"rows": Batch(2)}, {"isa": "amx_int8"}):
        assert not GemmRows.fits(dataclasses.replace(gemm, **other))
    with pytest.raises(InternalError, match="not the rows"):
        GemmRows(isa="avx2", gemm=gemm, quantize=QuantizeRows(isa="avx2", m=128, k=383))
    with pytest.raises(InternalError, match="either"):
        GemmRows(isa="avx2", gemm=gemm)
