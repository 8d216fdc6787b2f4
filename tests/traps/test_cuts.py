"""Elements that lie apart because they are cut out, where IREE 3.13 reads through the cut."""

from __future__ import annotations

import numpy as np
import pytest

from tests.traps.helpers import mended, raw, trap

PIXELS = np.arange(180, dtype=np.uint8).astype(np.int8).reshape(9, 10, 2) & 127
CODES = np.arange(256, dtype=np.float32)[::-1].copy()
FIRST = "%c = stablehlo.slice %x [0:9, 0:10, 1:2] : (tensor<9x10x2xi8>) -> tensor<9x10x1xi8>"
# By what makes %s : [5, 10, 1] of %x : [9, 10, 2].
CUTS = {
    "a slice of a slice": f"""{FIRST}
      %s = stablehlo.slice %c [2:7, 0:10, 0:1] : (tensor<9x10x1xi8>) -> tensor<5x10x1xi8>""",
    "a stride": """
      %r = stablehlo.reshape %x : (tensor<9x10x2xi8>) -> tensor<9x20xi8>
      %c = stablehlo.slice %r [2:7, 1:20:2] : (tensor<9x20xi8>) -> tensor<5x10xi8>
      %s = stablehlo.reshape %c : (tensor<5x10xi8>) -> tensor<5x10x1xi8>""",
    "a dynamic slice": """
      %a = stablehlo.constant dense<2> : tensor<i32>
      %b = stablehlo.constant dense<0> : tensor<i32>
      %d = stablehlo.constant dense<1> : tensor<i32>
      %s = stablehlo.dynamic_slice %x, %a, %b, %d, sizes = [5, 10, 1]
        : (tensor<9x10x2xi8>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x10x1xi8>""",
    "a negative pad": """
      %z = stablehlo.constant dense<0> : tensor<i8>
      %s = stablehlo.pad %x, %z, low = [-2, 0, -1], high = [-2, 0, 0], interior = [0, 0, 0]
        : (tensor<9x10x2xi8>, tensor<i8>) -> tensor<5x10x1xi8>""",
}
CUT = PIXELS[2:7, :, 1:]
# By what is read, and its result.
READS = {
    "reversal": (
        "tensor<5x10x1xi8>",
        "%y = stablehlo.reverse %s, dims = [0] : tensor<5x10x1xi8>",
        CUT[::-1],
    ),
    "rows": (
        "tensor<3x10x1xi8>",
        """%i = stablehlo.constant dense<[[4], [0], [2]]> : tensor<3x1xi32>
      %y = "stablehlo.gather"(%s, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2],
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
        slice_sizes = array<i64: 1, 10, 1>}>
        : (tensor<5x10x1xi8>, tensor<3x1xi32>) -> tensor<3x10x1xi8>""",
        CUT[[4, 0, 2]],
    ),
    "indices": (
        "tensor<5x10x1xf32>",
        """%i = stablehlo.convert %s : (tensor<5x10x1xi8>) -> tensor<5x10x1xi32>
      %y = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 3>,
        slice_sizes = array<i64: 1>}> : (tensor<256xf32>, tensor<5x10x1xi32>)
        -> tensor<5x10x1xf32>""",
        CODES[CUT],
    ),
}


def text(cut: str, read: str) -> str:
    kind, reader, _ = READS[read]
    return f"""(%x: tensor<9x10x2xi8>, %t: tensor<256xf32>) -> {kind} {{
      {CUTS[cut]}
      {reader}
      return %y : {kind} }}"""


@trap
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("cut", CUTS)
def test_what_lies_apart(cut, read):
    np.testing.assert_array_equal(raw(text(cut, read), PIXELS, CODES)[0], READS[read][2])


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("cut", CUTS)
def test_what_lies_apart_is_shielded(cut, read):
    (got,) = mended("shield-slices", text(cut, read), PIXELS, CODES)
    np.testing.assert_array_equal(got, READS[read][2])
