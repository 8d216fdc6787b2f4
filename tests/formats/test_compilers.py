"""Reasons that formats hold numbers as bits of int8 and read them with integer arithmetic.

Each compiler defect is pinned next to what formats do instead: when one is mended, its test fails.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from jq.formats import Encoding, get_format
from tests.iree.helpers import run
from tests.support.programs import Case, check

BYTES = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize(
    ("element", "oracle", "wrong"),
    [
        ("f8E4M3FN", ml_dtypes.float8_e4m3fn, {255: -480.0}),
        ("f8E5M2", ml_dtypes.float8_e5m2, {}),
        ("f8E8M0FNU", ml_dtypes.float8_e8m0fnu, {0: 0.0}),
    ],
)
def test_iree_reads_small_floats(element: str, oracle: type, wrong: dict[int, float]) -> None:
    """Its e4m3fn has no NaN at 0xFF, its e8m0 no 2^-127; ours: `test_minifloat`."""
    (got,) = run(
        f"""func.func @main(%a: tensor<256xi8>) -> tensor<256xf32> {{
          %0 = stablehlo.bitcast_convert %a : (tensor<256xi8>) -> tensor<256x{element}>
          %1 = stablehlo.convert %0 : (tensor<256x{element}>) -> tensor<256xf32>
          return %1 : tensor<256xf32>
        }}""",
        BYTES.view(np.int8),
    )
    want = BYTES.view(oracle).astype(np.float32)
    differ = np.flatnonzero((got != want) & ~(np.isnan(got) & np.isnan(want)))
    assert {int(i): float(got[i]) for i in differ} == wrong


def test_iree_does_not_saturate_conversions() -> None:
    """Quantization saturates before it converts."""
    x = np.array([300, -300, np.nan, 1e10], np.float32)
    (got,) = run(
        """func.func @main(%a: tensor<4xf32>) -> tensor<4xi8> {
          %0 = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xi8>
          return %0 : tensor<4xi8>
        }""",
        x,
    )
    assert got[3] != 127  # 300 is 44 or 127, by the processor
    enc, fmt = Encoding("int8", (4,), (0,)), get_format("int8")
    one = np.ones(1, np.float32)
    check([Case(lambda o, x, s: fmt.quantize_static(o, x, s, None, enc), [x, one])], "iree")
    assert fmt.quantize(x, one, None, enc).tolist() == [127, -127, 0, 127]


def test_iree_multiplies_unsigned_numbers_as_signed() -> None:
    """Unsigned formats are signed codes and a zero point, whose products are right."""
    a, b = np.full((4, 64), 200, np.uint8), np.ones((64, 8), np.int8)
    product = """func.func @main(%a: tensor<4x64xi8>, %b: tensor<64x8xi8>) -> tensor<4x8xi32> {{
          {unsigned}
          %d = stablehlo.convert %b : (tensor<64x8xi8>) -> tensor<64x8xi32>
          %p = stablehlo.dot_general %c, %d, contracting_dims = [1] x [0]
            : (tensor<4x64xi32>, tensor<64x8xi32>) -> tensor<4x8xi32>
          return %p : tensor<4x8xi32>
        }}"""
    unsigned = """%u = stablehlo.bitcast_convert %a : (tensor<4x64xi8>) -> tensor<4x64xui8>
          %c = stablehlo.convert %u : (tensor<4x64xui8>) -> tensor<4x64xi32>"""
    shifted = "%c = stablehlo.convert %a : (tensor<4x64xi8>) -> tensor<4x64xi32>"
    exact = a.astype(np.int32) @ b.astype(np.int32)
    (wrong,) = run(product.format(unsigned=unsigned), a.view(np.int8), b)
    assert (wrong != exact).all()
    codes, zero = (a.astype(np.int32) - 128).astype(np.int8), -128
    (right,) = run(product.format(unsigned=shifted), codes, b)
    np.testing.assert_array_equal(right - zero * b.astype(np.int32).sum(axis=0), exact)
