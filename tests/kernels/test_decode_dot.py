"""The kernel that decodes: every family of formats, few rows and many, odd shapes."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, get_format
from jq.kernels import Bias, Clamp, DecodeDot, Residual
from jq.kernels.gemv.decode_dot import PANEL_BYTES
from tests.kernels.harness import Runner, linked
from tests.kernels.references import reference
from tests.kernels.strategies import HERE

CASES = [  # format, block, scheme, scale type, M, K, N
    ("int8", (1, 0), "symmetric", "float32", 5, 70, 9),
    ("int8", (0, 0), "asymmetric", "float32", 2, 64, 5),
    ("int4", (1, 32), "symmetric", "float16", 1, 100, 33),
    ("int4", (1, 32), "asymmetric", "float16", 7, 130, 12),
    ("int4", (1, 16), "asymmetric", "float32", 4, 40, 3),
    ("uint4", (1, 0), "asymmetric", "float32", 6, 33, 4),
    ("int2", (1, 8), "symmetric", "bfloat16", 3, 37, 6),
    ("int3", (1, 32), "asymmetric", "float16", 2, 100, 9),
    ("int3", (1, 32), "asymmetric", "float16", 6, 384, 5),  # zero points of 4 blocks: half a group
    ("int3", (1, 64), "symmetric", "float32", 6, 130, 5),
    ("int16", (1, 0), "symmetric", "float32", 5, 48, 4),
    ("float8_e4m3fn", (1, 0), "symmetric", "float32", 9, 65, 5),
    ("float8_e5m2", (1, 48), "symmetric", "float8_e8m0fnu", 2, 96, 5),
    ("mxint8", (1, 32), "symmetric", "float32", 1, 31, 2),
    ("int8", (1, 3), "symmetric", "float32", 5, 147, 9),  # more than a vector is left after 129
    ("mxfp8_e5m2", (1, 32), "symmetric", "float32", 4, 257, 7),
    ("mxfp6_e3m2", (1, 32), "symmetric", "float32", 5, 64, 1),
    ("mxfp4", (1, 32), "symmetric", "float32", 5, 75, 17),
    ("nvfp4", (1, 16), "symmetric", "float32", 3, 47, 8),
    ("nf4", (1, 64), "symmetric", "float32", 8, 128, 4),
    ("q8_0", (1, 32), "symmetric", "float32", 1, 64, 9),
    ("q5_1", (1, 32), "symmetric", "float32", 6, 96, 5),
    ("q2_k", (1, 256), "symmetric", "float32", 2, 256, 3),
    ("q3_k", (1, 256), "symmetric", "float32", 5, 512, 2),
    ("q4_k", (1, 256), "symmetric", "float32", 5, 512, 9),
    ("q6_k", (1, 256), "symmetric", "float32", 1, 256, 4),
    ("ggml_mxfp4", (1, 32), "symmetric", "float32", 6, 64, 6),
    ("iq4_nl", (1, 32), "symmetric", "float32", 2, 96, 5),
    ("iq4_xs", (1, 256), "symmetric", "float32", 6, 512, 4),
    ("tq1_0", (1, 256), "symmetric", "float32", 1, 512, 7),
    ("tq2_0", (1, 256), "symmetric", "float32", 5, 256, 4),
]


# Formats that are read through a table or as halves, on registers of other widths.
ELSEWHERE = [
    (("nf4", (1, 64), "symmetric", "float32", 3, 130, 5), isa)
    for isa in ("avx2", "sse2")
    if isa in HERE
] + [(("float8_e4m3fn", (1, 0), "symmetric", "float32", 2, 70, 4), "portable")]


def made(case, isa=None):
    fmt, block, scheme, scale_type, m, k, n = case
    rng = np.random.default_rng(k * n)
    x = rng.standard_normal((m, k)).astype(np.float32)
    encoding = Encoding(fmt, (n, k), block, scheme, scale_type)
    parts = get_format(fmt).encode(rng.standard_normal((n, k)).astype(np.float32), encoding)
    weight = np.asarray(get_format(fmt).decode(NUMPY, parts, encoding))
    kernel = DecodeDot(
        isa=isa or HERE[0],
        m=m,
        k=k,
        n=n,
        format=fmt,
        block=block,
        scheme=scheme,
        scale_type=scale_type,
    )
    return kernel, x, parts, weight


@pytest.fixture(scope="module")
def runner():
    return Runner([made(case)[0] for case in CASES])


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{c[0]}-{c[4]}x{c[5]}" for c in CASES])
def test_equals_the_decoded_weight(runner, index):
    check(runner, index, *made(CASES[index]))


def test_other_instruction_sets():
    runner = Runner([made(*case)[0] for case in ELSEWHERE])
    for index, case in enumerate(ELSEWHERE):
        check(runner, index, *made(*case))


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(("fmt", "size"), [("int8", 0), ("mxint8", 3), ("int4", 20)])
def test_every_length_can_be_emitted(isa, fmt, size):
    """Nothing is read or written past an end, whatever is left of K after whole steps."""
    block, lengths = (1, size), [*range(1, 36, 2), *range(126, 165)]  # of one step, and of two
    linked([DecodeDot(isa=isa, m=5, k=k, n=9, format=fmt, block=block) for k in lengths])


@pytest.mark.parametrize("n", [3, 40, 150])
def test_what_follows_is_computed_on_whole_rows(n):
    """Bias, residual and an activation: columns fewer than a vector, and more than four."""
    kernel, x, parts, weight = made(("int8", (1, 0), "symmetric", "float32", 9, 70, n))
    kernels = [replace(kernel, isa=isa, epilogue=(Bias(), Residual(), Clamp())) for isa in HERE]
    runner, rng = Runner(kernels), np.random.default_rng(0)
    bias, residual = (rng.standard_normal(s).astype(np.float32) for s in (n, (9, n)))
    stored = [parts[name] for name in kernel.storage]
    plain = reference(kernel, x, weight) + bias + residual
    size = abs(x).astype(np.float64) @ abs(weight).astype(np.float64).T + abs(bias) + abs(residual)
    for i, each in enumerate(kernels):
        (got,) = runner.run(i, x, *stored, each.pad_columns(bias), residual)
        assert (abs(got - np.maximum(plain, 0)) <= (70 + 8) * 2.0**-24 * size).all(), each.isa


HALVED = [
    ("int8", (1, 0), "symmetric", "float32", 17, 70, 33),
    ("int4", (1, 32), "asymmetric", "float16", 40, 200, 16),
    ("int4", (1, 24), "symmetric", "float32", 16, 300, 70),  # steps that are no whole tiles
    ("nf4", (1, 64), "symmetric", "float32", 128, 96, 100),
    ("q6_k", (1, 256), "symmetric", "float32", 20, 512, 48),
    ("float8_e4m3fn", (1, 0), "symmetric", "float32", 16, 1000, 19),
]


def test_decoded_to_bfloat16():
    """Operands rounded, and sums in float32; where nothing multiplies them, nothing is rounded."""
    isas = [isa for isa in HERE if isa in ("amx_int8", "avx512_bf16", "avx2")]
    given = [(made(case, isa), isa, case) for case in HALVED for isa in isas]
    kernels = [replace(kernel, precision="bf16", epilogue=(Bias(),)) for (kernel, *_), *_ in given]
    runner = Runner(kernels)
    for i, ((_, x, parts, weight), isa, case) in enumerate(given):
        kernel = kernels[i]
        whole = case[1] != (1, 24)
        assert kernel.halved == (isa != "avx2" and whole)
        bias = np.arange(kernel.n, dtype=np.float32)
        stored = [parts[name] for name in kernel.storage]
        (got,) = runner.run(i, x, *stored, kernel.pad_columns(bias))
        if kernel.halved:
            x, weight = (v.astype(ml_dtypes.bfloat16).astype(np.float32) for v in (x, weight))
        size = abs(x).astype(np.float64) @ abs(weight).astype(np.float64).T + bias
        want = reference(kernel, x, weight) + bias
        # A decode that fuses a product and a sum may fall to the other neighbour of a weight.
        neighbour = 2.0**-8 * kernel.halved * (kernel.scheme == "asymmetric")
        assert (abs(got - want) <= ((kernel.k + 8) * 2.0**-24 + neighbour) * size).all()


WHOLE = [
    ("int8", (1, 0), "symmetric", "float32", 64, 70, 33),
    ("int4", (1, 32), "asymmetric", "float16", 70, 200, 16),
    ("int4", (1, 12), "symmetric", "float32", 65, 300, 70),  # steps that are no whole vectors
    ("float8_e4m3fn", (1, 0), "symmetric", "float32", 64, 1000, 19),
    ("mxfp4", (1, 32), "symmetric", "float32", 67, 75, 7),  # fewer columns than a vector
    ("int4", (1, 32), "symmetric", "float16", 9, 4128, 19),  # a panel of fewer vectors
    ("int8", (1, 0), "symmetric", "float32", 5, 12300, 19),  # none fits: the whole weight
    ("int8", (1, 0), "symmetric", "float32", 5, 12300, 3),
]


def test_decoded_to_float32():
    """Weights are decoded by panels for products of floats with many rows, or the whole weight
    where a panel is too long for that."""
    isas = [isa for isa in HERE if isa != "portable"]
    given = [(made(case, isa), isa) for case in WHOLE for isa in isas]
    kernels = [replace(kernel, epilogue=(Bias(),)) for (kernel, *_), _ in given]
    runner = Runner(kernels)
    for i, ((_, x, parts, weight), isa) in enumerate(given):
        kernel, bias = kernels[i], np.arange(kernels[i].n, dtype=np.float32)
        assert kernel.panelled == (4 * kernel.k * kernel.target.lanes <= PANEL_BYTES)
        stored = [parts[name] for name in kernel.storage]
        (got,) = runner.run(i, x, *stored, kernel.pad_columns(bias))
        size = abs(x).astype(np.float64) @ abs(weight).astype(np.float64).T + bias
        want = reference(kernel, x, weight) + bias
        assert (abs(got - want) <= (kernel.k + 8) * 2.0**-24 * size).all(), (isa, kernel.label)


def check(runner, index, kernel, x, parts, weight):
    (got,) = runner.run(index, x, *[parts[name] for name in kernel.storage])
    want = reference(kernel, x, weight)
    size = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    # Rounding of a sum of K terms, and of an asymmetric decode fused into it.
    terms = kernel.k / kernel.target.lanes if kernel.direct else kernel.k
    assert (np.abs(got - want) <= (terms + 8) * 2.0**-24 * size + 1e-30).all()
