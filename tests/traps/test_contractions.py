"""Products and convolutions that IREE 3.13 computes wrongly, or refuses."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import CompilerError
from jq.iree.compiler import HOST_FLAGS, compile_module
from tests.ir.ops.test_convolution import Window, convolve
from tests.traps.helpers import mended, raw, trap

RNG = np.random.default_rng(0)

# Unsigned operands of a contraction are taken for signed ones.
UNSIGNED = {
    "direct": """(%x: tensor<4x8xui8>, %w: tensor<8x3xui8>) -> tensor<4x3xi32> {
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
           : (tensor<4x8xui8>, tensor<8x3xui8>) -> tensor<4x3xi32>
      return %y : tensor<4x3xi32> }""",
    "converted": """(%x: tensor<4x8xui8>, %w: tensor<8x3xui8>) -> tensor<4x3xi32> {
      %a = stablehlo.convert %x : (tensor<4x8xui8>) -> tensor<4x8xi32>
      %b = stablehlo.convert %w : (tensor<8x3xui8>) -> tensor<8x3xi32>
      %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
           : (tensor<4x8xi32>, tensor<8x3xi32>) -> tensor<4x3xi32>
      return %y : tensor<4x3xi32> }""",
}
BYTES = [RNG.integers(128, 256, shape).astype(np.uint8) for shape in ((4, 8), (8, 3))]
PRODUCT = BYTES[0].astype(np.int32) @ BYTES[1].astype(np.int32)


@trap
@pytest.mark.parametrize("form", UNSIGNED)
def test_unsigned_operands(form):
    np.testing.assert_array_equal(raw(UNSIGNED[form], *BYTES)[0], PRODUCT)


@pytest.mark.parametrize("form", UNSIGNED)
def test_unsigned_operands_are_shielded(form):
    np.testing.assert_array_equal(mended("shield-unsigned", UNSIGNED[form], *BYTES)[0], PRODUCT)


# A product that sums over nothing, beside a conversion of its operand.
OUTER = """(%x: tensor<15x1xi8>, %w: tensor<1x8xi8>) -> (tensor<3x5x8xi32>, tensor<3x5x1xi32>) {
  %a = stablehlo.reshape %x : (tensor<15x1xi8>) -> tensor<3x5x1xi8>
  %b = stablehlo.convert %a : (tensor<3x5x1xi8>) -> tensor<3x5x1xi32>
  %y = stablehlo.dot_general %a, %w, contracting_dims = [2] x [0]
       : (tensor<3x5x1xi8>, tensor<1x8xi8>) -> tensor<3x5x8xi32>
  return %y, %b : tensor<3x5x8xi32>, tensor<3x5x1xi32> }"""
COLUMN, ROW = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((15, 1), (1, 8)))
TABLE = (COLUMN.astype(np.int32) * ROW).reshape(3, 5, 8)


@trap(raises=CompilerError)
def test_outer_product():
    """As text: written and read again as an artifact of StableHLO, this one is compiled."""
    text = f"func.func public @main{OUTER}"
    compile_module(text.encode(), flags=HOST_FLAGS, keep_dump=False)


def test_outer_product_is_multiplied():
    np.testing.assert_array_equal(mended("multiply-outer", OUTER, COLUMN, ROW)[0], TABLE)


# A reduction that is read along different axes: sums of rows are taken for those of columns.
REDUCED = """(%x: tensor<4x3x1x3xf32>) -> tensor<4x3x3xf32> {
  %c = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %c) applies stablehlo.maximum across dimensions = [3]
    : (tensor<4x3x1x3xf32>, tensor<f32>) -> tensor<4x3x1xf32>
  %y = stablehlo.dot_general %m, %m, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<4x3x1xf32>, tensor<4x3x1xf32>) -> tensor<4x3x3xf32>
  return %y : tensor<4x3x3xf32> }"""
GIVEN = RNG.integers(-8, 9, (4, 3, 1, 3)).astype(np.float32)
SQUARES = GIVEN.max(3) * GIVEN.max(3).transpose(0, 2, 1)


@trap
def test_outer_product_of_a_reduction_with_itself():
    np.testing.assert_array_equal(raw(REDUCED, GIVEN)[0], SQUARES)


def test_outer_product_of_a_reduction_with_itself_is_shielded():
    np.testing.assert_array_equal(mended("shield-reductions", REDUCED, GIVEN)[0], SQUARES)


@pytest.mark.parametrize("rows", [7, 64])
def test_pairs_of_rows(rows):
    """Distances between all of them; the sums are written twice, and are one."""

    def distances(x):
        sums = (x * x).sum(-1)[:, None], (x * x).sum(-1)[None, :]
        return jnp.sqrt(sums[0]) - 2 * x @ x.T + jnp.sqrt(sums[1])

    x = RNG.integers(-8, 9, (rows, 5)).astype(np.float32)
    found = jq.compile(jq.Model(lambda p, x: distances(x), {}, (x,)), "float")(x)
    np.testing.assert_allclose(found, distances(x), rtol=1e-6, atol=1e-5)


# What is computed from equal numbers is summed once for each vector, not for each element.
EQUAL = {
    "sum": """(%x: tensor<2xi32>, %w: tensor<2x3xi8> {jq.weight = "w"}) -> tensor<2xi32> {
      %c = stablehlo.constant dense<0> : tensor<i32>
      %a = stablehlo.convert %w : (tensor<2x3xi8>) -> tensor<2x3xi32>
      %s = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1]
        : (tensor<2x3xi32>, tensor<i32>) -> tensor<2xi32>
      %y = stablehlo.add %s, %x : tensor<2xi32>
      return %y : tensor<2xi32> }""",
    "window": """(%x: tensor<2xi32>, %w: tensor<2x3xi8> {jq.weight = "w"}) -> tensor<2xi32> {
      %c = stablehlo.constant dense<0> : tensor<i32>
      %a = stablehlo.convert %w : (tensor<2x3xi8>) -> tensor<2x3xi32>
      %s = "stablehlo.reduce_window"(%a, %c) <{window_dimensions = array<i64: 1, 3>}> ({
      ^bb0(%p: tensor<i32>, %q: tensor<i32>):
        %t = stablehlo.add %p, %q : tensor<i32>
        stablehlo.return %t : tensor<i32>
      }) : (tensor<2x3xi32>, tensor<i32>) -> tensor<2x1xi32>
      %r = stablehlo.reshape %s : (tensor<2x1xi32>) -> tensor<2xi32>
      %y = stablehlo.add %r, %x : tensor<2xi32>
      return %y : tensor<2xi32> }""",
}
SUMMED = np.array([1, 2], np.int32), np.full((2, 3), 127, np.int8)


@trap
@pytest.mark.parametrize("form", EQUAL)
def test_sums_of_equal_numbers(form):
    x, w = SUMMED
    np.testing.assert_array_equal(raw(EQUAL[form], x, w=w)[0], x + 381)


@pytest.mark.parametrize("form", EQUAL)
def test_sums_of_equal_numbers_are_shielded(form):
    x, w = SUMMED
    np.testing.assert_array_equal(mended("shield-equal", EQUAL[form], x, w=w)[0], x + 381)


# A depthwise convolution whose filter is narrower than its result gives garbage, or is refused.
DEPTHWISE = """(%x: tensor<1x6x6x4xi8>, %w: tensor<3x3x1x4xi8> {jq.weight = "w"})
    -> tensor<1x4x4x4xi32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 4 : i64}
    : (tensor<1x6x6x4xi8>, tensor<3x3x1x4xi8>) -> tensor<1x4x4x4xi32>
  return %y : tensor<1x4x4x4xi32> }"""
IMAGE = RNG.integers(-128, 128, (1, 6, 6, 4)).astype(np.int8)
FILTER = RNG.integers(-128, 128, (3, 3, 1, 4)).astype(np.int8)
PLAIN = Window((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), (False, False))


def grouped(x: np.ndarray, w: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """NHWC with HWIO."""
    y = convolve(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), window, groups)
    return y.transpose(0, 2, 3, 1)


@trap
def test_narrow_depthwise():
    want = grouped(IMAGE, FILTER, PLAIN, 4)
    np.testing.assert_array_equal(raw(DEPTHWISE, IMAGE, w=FILTER)[0], want)


def test_narrow_depthwise_is_widened():
    want = grouped(IMAGE, FILTER, PLAIN, 4)
    np.testing.assert_array_equal(mended("widen-depthwise", DEPTHWISE, IMAGE, w=FILTER)[0], want)


# A reversed window is ignored where each group has one channel.
REVERSED = DEPTHWISE.replace("window = {}", "window = {reverse = [true, false]}").replace(
    "xi8>", "xi32>"
)
WIDE = IMAGE.astype(np.int32), FILTER.astype(np.int32)
FLIPPED = Window((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), (True, False))


@trap
def test_reversed_window():
    want = grouped(*WIDE, FLIPPED, 4)
    np.testing.assert_array_equal(raw(REVERSED, WIDE[0], w=WIDE[1])[0], want)


def test_reversed_window_is_written_out():
    want = grouped(*WIDE, FLIPPED, 4)
    np.testing.assert_array_equal(mended("plain-windows", REVERSED, WIDE[0], w=WIDE[1])[0], want)


# A grouped convolution is refused where its strides end early and its result has one row.
STRIDED = """(%x: tensor<1x6x6x4xi8>, %w: tensor<5x5x2x4xi8> {jq.weight = "w"})
    -> tensor<1x1x1x4xi32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
    : (tensor<1x6x6x4xi8>, tensor<5x5x2x4xi8>) -> tensor<1x1x1x4xi32>
  return %y : tensor<1x1x1x4xi32> }"""
PAIRS = RNG.integers(-128, 128, (5, 5, 2, 4)).astype(np.int8)
STRIDES = Window((2, 2), ((0, 0), (0, 0)), (1, 1), (1, 1), (False, False))


@trap(raises=CompilerError)
def test_strides_that_end_early():
    """Invalid from a phase in the middle on, where its program would be another one."""
    want = grouped(IMAGE, PAIRS, STRIDES, 2)
    np.testing.assert_array_equal(raw(STRIDED, IMAGE, w=PAIRS)[0], want)


def test_strides_that_end_early_are_cut():
    want = grouped(IMAGE, PAIRS, STRIDES, 2)
    np.testing.assert_array_equal(mended("plain-windows", STRIDED, IMAGE, w=PAIRS)[0], want)


# A window that ends before the last element, where the result has one row, reads another place.
EARLY = """(%x: tensor<2x3x3x4xf32>, %w: tensor<2x2x4x6xf32> {jq.weight = "w"})
    -> tensor<2x1x1x6xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x3x3x4xf32>, tensor<2x2x4x6xf32>) -> tensor<2x1x1x6xf32>
  return %y : tensor<2x1x1x6xf32> }"""
POOL = """(%x: tensor<2x2x3x4xf32>) -> tensor<2x1x1x4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %c) <{window_dimensions = array<i64: 1, 2, 2, 1>,
      window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) : (tensor<2x2x3x4xf32>, tensor<f32>) -> tensor<2x1x1x4xf32>
  return %0 : tensor<2x1x1x4xf32> }"""
WHOLE = RNG.integers(-9, 10, (2, 3, 3, 4)).astype(np.float32)  # sums are exact
EDGE = RNG.integers(-9, 10, (2, 2, 4, 6)).astype(np.float32)
CONVOLVED = np.einsum("bhwi,hwio->bo", WHOLE[:, :2, :2], EDGE).reshape(2, 1, 1, 6)
POOLED = WHOLE[:, :2, :2].sum((1, 2), keepdims=True)


@trap
def test_convolution_that_ends_early():
    np.testing.assert_array_equal(raw(EARLY, WHOLE, w=EDGE)[0], CONVOLVED)


@trap
def test_pool_that_ends_early():
    np.testing.assert_array_equal(raw(POOL, WHOLE[:, :2])[0], POOLED)


def test_windows_that_end_early_are_cut():
    got = mended("plain-windows", EARLY, WHOLE, w=EDGE)[0]
    np.testing.assert_array_equal(got, CONVOLVED)
    np.testing.assert_array_equal(mended("plain-windows", POOL, WHOLE[:, :2])[0], POOLED)


# Every second element is pooled, or multiplied; all of them are computed for the other result.
STEPPED = """(%x: tensor<1x9x1xf32>) -> (tensor<1x5x1xf32>, tensor<1x9x1xf32>) {
  %y = stablehlo.multiply %x, %x : tensor<1x9x1xf32>
  %a = stablehlo.abs %y : tensor<1x9x1xf32>
  """
STEPPED_END = """
  %n = stablehlo.negate %y : tensor<1x9x1xf32>
  return %w, %n : tensor<1x5x1xf32>, tensor<1x9x1xf32> }"""
POOL_STEPPED = """%i = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %w = "stablehlo.reduce_window"(%a, %i) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %m = stablehlo.minimum %p, %q : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 1, 1>, window_strides = array<i64: 1, 2, 1>}
    : (tensor<1x9x1xf32>, tensor<f32>) -> tensor<1x5x1xf32>"""
CONVOLUTION_STEPPED = """%k = stablehlo.constant dense<1.0> : tensor<1x1x1xf32>
  %w = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {stride = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x9x1xf32>, tensor<1x1x1xf32>) -> tensor<1x5x1xf32>"""
NINE = np.arange(1, 10, dtype=np.float32).reshape(1, 9, 1)


@trap
@pytest.mark.parametrize("window", [POOL_STEPPED, CONVOLUTION_STEPPED], ids=["pool", "convolution"])
def test_what_a_window_of_one_element_steps_over(window):
    np.testing.assert_array_equal(raw(STEPPED + window + STEPPED_END, NINE)[1], -(NINE**2))


@pytest.mark.parametrize("window", [POOL_STEPPED, CONVOLUTION_STEPPED], ids=["pool", "convolution"])
def test_what_a_window_of_one_element_steps_over_is_shielded(window):
    chosen, every = mended("shield-strides", STEPPED + window + STEPPED_END, NINE)
    np.testing.assert_array_equal(chosen, NINE[:, ::2] ** 2)
    np.testing.assert_array_equal(every, -(NINE**2))
