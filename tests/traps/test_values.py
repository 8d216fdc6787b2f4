"""Indices, conversions and broadcasts that IREE 3.13 compiles otherwise than StableHLO says."""

from __future__ import annotations

import numpy as np
import pytest

from jq.base.errors import CompilerError
from tests.traps.helpers import mended, raw, trap

# Indices of a gather are not clamped: memory out of bounds is read, and with constant ones the
# compiler itself crashes. (The first cannot be shown without reading that memory.)
TABLE = np.arange(8, dtype=np.float32).reshape(4, 2)
LOOKUP = """{
  ROWS
  %y = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 2>}> : (tensor<4x2xf32>, tensor<3x1xi32>) -> tensor<3x2xf32>
  return %y : tensor<3x2xf32> }"""
WEIGHT = '%t: tensor<4x2xf32> {jq.weight = "t"}'
FIXED = f"({WEIGHT}) -> tensor<3x2xf32> " + LOOKUP.replace(
    "ROWS", "%i = stablehlo.constant dense<[[-5], [2], [1000000000]]> : tensor<3x1xi32>"
)
GIVEN = f"(%i: tensor<3x1xi32>, {WEIGHT}) -> tensor<3x2xf32> " + LOOKUP.replace("ROWS", "")
ROWS = np.array([[-5], [2], [10**9]], np.int32)


@trap
def test_constant_indices_out_of_range():
    try:
        (got,) = raw(FIXED, t=TABLE)
    except CompilerError as error:
        pytest.fail(str(error))
    np.testing.assert_array_equal(got, TABLE[[0, 2, 3]])


def test_indices_are_clamped():
    np.testing.assert_array_equal(mended("clamp-indices", FIXED, t=TABLE)[0], TABLE[[0, 2, 3]])
    np.testing.assert_array_equal(
        mended("clamp-indices", GIVEN, ROWS, t=TABLE)[0], TABLE[[0, 2, 3]]
    )


# The last position of a slice, 197, is computed in the type of the position, and as a signed one.
SLICED = """(%x: tensor<200xf32>, %i: tensor<KIND>, %u: tensor<3xf32>)
    -> (tensor<3xf32>, tensor<200xf32>) {
  %y = stablehlo.dynamic_slice %x, %i, sizes = [3]
    : (tensor<200xf32>, tensor<KIND>) -> tensor<3xf32>
  %z = stablehlo.dynamic_update_slice %x, %u, %i
    : (tensor<200xf32>, tensor<3xf32>, tensor<KIND>) -> tensor<200xf32>
  return %y, %z : tensor<3xf32>, tensor<200xf32> }"""
LINE, THREE = np.arange(200, dtype=np.float32), np.full(3, -1, np.float32)
POSITIONS = [
    ("i8", -61),
    ("i8", 100),
    ("ui8", 150),
    ("ui8", 250),
    ("i16", 32000),
    ("ui32", 2**32 - 9),
]


@trap
def test_a_narrow_position():
    cut, _ = raw(SLICED.replace("KIND", "i8"), LINE, np.int8(-61), THREE)
    np.testing.assert_array_equal(cut, LINE[:3])


@pytest.mark.parametrize(("kind", "at"), POSITIONS)
def test_positions_of_every_type(kind, at):
    position = np.array(at, kind.replace("i", "int"))
    cut, written = mended("clamp-indices", SLICED.replace("KIND", kind), LINE, position, THREE)
    begin = min(max(at, 0), 197)
    np.testing.assert_array_equal(cut, LINE[begin : begin + 3])
    np.testing.assert_array_equal(np.flatnonzero(written == -1), range(begin, begin + 3))


# A conversion from float to integer wraps.
FLOATS = np.array(
    [
        300,
        -300,
        1e30,
        -1e30,
        np.inf,
        -np.inf,
        np.nan,
        2.7,
        -2.7,
        127,
        2.0**31,
        3e9,
        2.0**32 - 256,
        5e9,
    ],
    np.float32,
)
INTEGERS = ("i8", "i16", "i32", "ui8", "ui16", "ui32", "i64")


def conversion(element: str) -> str:
    kind = f"tensor<14x{element}>"
    return f"""(%x: tensor<14xf32>) -> {kind} {{
      %y = stablehlo.convert %x : (tensor<14xf32>) -> {kind}
      return %y : {kind} }}"""


def saturated(element: str) -> np.ndarray:
    """As XLA: towards zero, within the type, and NaN is 0."""
    info = np.iinfo(element.replace("i", "int"))
    exact = np.nan_to_num(FLOATS.astype(np.float64), nan=0, posinf=1e30, neginf=-1e30)
    return np.array([min(max(int(x), info.min), info.max) for x in exact], info.dtype)


@trap
@pytest.mark.parametrize("element", INTEGERS)
def test_conversions_out_of_range(element):
    np.testing.assert_array_equal(raw(conversion(element), FLOATS)[0], saturated(element))


@pytest.mark.parametrize("element", INTEGERS)
def test_conversions_saturate(element):
    (got,) = mended("saturate-converts", conversion(element), FLOATS)
    np.testing.assert_array_equal(got, saturated(element))


# A broadcast that permutes and adds no elements becomes the inverse transpose.
CUBE = np.arange(27, dtype=np.int32).reshape(3, 3, 3)
PERMUTING = """(%x: tensor<3x3x3xi32>) -> tensor<3x3x3xi32> {
  %y = stablehlo.broadcast_in_dim %x, dims = [1, 2, 0] : (tensor<3x3x3xi32>) -> tensor<3x3x3xi32>
  return %y : tensor<3x3x3xi32> }"""


@trap
def test_permuting_broadcast():
    np.testing.assert_array_equal(raw(PERMUTING, CUBE)[0], CUBE.transpose(2, 0, 1))


def test_permuting_broadcast_is_ordered():
    (got,) = mended("order-broadcasts", PERMUTING, CUBE)
    np.testing.assert_array_equal(got, CUBE.transpose(2, 0, 1))


# A gather reads through a slice, and not where elements do not lie side by side.
PIXELS = np.arange(180, dtype=np.float32).reshape(9, 10, 2)
CHOSEN = np.array([[4], [0], [7]], np.int32)
CHANNEL = """(%x: tensor<9x10x2xf32>, %i: tensor<3x1xi32>) -> tensor<3x10xf32> {
  %s = stablehlo.slice %x [0:9, 0:10, 0:1] : (tensor<9x10x2xf32>) -> tensor<9x10x1xf32>
  %r = stablehlo.reshape %s : (tensor<9x10x1xf32>) -> tensor<9x10xf32>
  %y = "stablehlo.gather"(%r, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 10>}> : (tensor<9x10xf32>, tensor<3x1xi32>) -> tensor<3x10xf32>
  return %y : tensor<3x10xf32> }"""


@trap
def test_gather_from_a_channel():
    np.testing.assert_array_equal(raw(CHANNEL, PIXELS, CHOSEN)[0], PIXELS[CHOSEN[:, 0], :, 0])


def test_gather_from_a_channel_is_shielded():
    (got,) = mended("shield-slices", CHANNEL, PIXELS, CHOSEN)
    np.testing.assert_array_equal(got, PIXELS[CHOSEN[:, 0], :, 0])


# So does a reversal, also where IREE folds away what lies between.
FLIPPED = """(%x: tensor<9x10x2xf32>) -> tensor<9x10xf32> {
  %s = stablehlo.slice %x [0:9, 0:10, 1:2] : (tensor<9x10x2xf32>) -> tensor<9x10x1xf32>
  %r = stablehlo.reshape %s : (tensor<9x10x1xf32>) -> tensor<9x10xf32>
  %c = stablehlo.complex %r, %r : tensor<9x10xcomplex<f32>>
  %i = stablehlo.imag %c : (tensor<9x10xcomplex<f32>>) -> tensor<9x10xf32>
  %y = stablehlo.reverse %i, dims = [0, 1] : tensor<9x10xf32>
  return %y : tensor<9x10xf32> }"""
TURNED = """(%x: tensor<9x10x2xf32>) -> tensor<9x10x1xf32> {
  %s = stablehlo.slice %x [0:9, 0:10, 1:2] : (tensor<9x10x2xf32>) -> tensor<9x10x1xf32>
  %y = stablehlo.reverse %s, dims = [0, 1] : tensor<9x10x1xf32>
  return %y : tensor<9x10x1xf32> }"""


@trap
@pytest.mark.parametrize("text", [FLIPPED, TURNED])
def test_reversal_of_a_channel(text):
    np.testing.assert_array_equal(raw(text, PIXELS)[0].ravel(), PIXELS[::-1, ::-1, 1].ravel())


@pytest.mark.parametrize("text", [FLIPPED, TURNED])
def test_reversal_of_a_channel_is_shielded(text):
    (got,) = mended("shield-slices", text, PIXELS)
    np.testing.assert_array_equal(got.ravel(), PIXELS[::-1, ::-1, 1].ravel())


# A multiplication by numbers that are converted from truth values becomes a choice.
MASKED = """(%b: tensor<3x1xi1>, %x: tensor<3x2xf32>) -> tensor<3x2xf32> {
  %0 = stablehlo.convert %b : (tensor<3x1xi1>) -> tensor<3x1xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<3x1xf32>) -> tensor<3x2xf32>
  %2 = stablehlo.multiply %x, %1 : tensor<3x2xf32>
  return %2 : tensor<3x2xf32> }"""
MASK = np.array([[True], [False], [False]])
NUMBERS = np.array([[np.inf, 2], [-np.inf, np.nan], [-3, 4]], np.float32)
PRODUCTS = np.array([[np.inf, 2], [np.nan, np.nan], [-0.0, 0]], np.float32)


@trap
def test_infinities_by_truth_values():
    np.testing.assert_array_equal(raw(MASKED, MASK, NUMBERS)[0], PRODUCTS)


def test_infinities_by_written_truth_values():
    (got,) = mended("plain-booleans", MASKED, MASK, NUMBERS)
    np.testing.assert_array_equal(got, PRODUCTS)
    assert np.signbit(got[2, 0])
