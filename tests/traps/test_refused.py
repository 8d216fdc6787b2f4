"""Single ops that IREE refuses, crashes on, or gets wrong by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from jq.base.errors import CompilerError, UserError
from jq.iree.compiler import HOST_FLAGS, compile_module
from tests.traps.helpers import mended, raw, trap

SELECTED = """(%x: tensor<4x4xf32>, %s: tensor<2x3xf32>) -> tensor<4x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = "stablehlo.select_and_scatter"(%x, %s, %zero) <{
    window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 2, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %ge = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %ge : tensor<i1>
  }, {
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
  }) : (tensor<4x4xf32>, tensor<2x3xf32>, tensor<f32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32> }"""


@trap(raises=CompilerError)
def test_select_and_scatter():
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    (got,) = raw(SELECTED, x, np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(got, np.isin(x, [5, 6, 7, 13, 14, 15]))


UNSIGNED = {
    "reversal": ("%y = stablehlo.reverse %x, dims = [0] : tensor<5xui8>", lambda x: x[::-1]),
    "window": (
        """%zero = stablehlo.constant dense<0> : tensor<ui8>
  %y = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 5>,
    padding = dense<[[4, 0]]> : tensor<1x2xi64>}> ({
    ^bb0(%a: tensor<ui8>, %b: tensor<ui8>):
      %sum = stablehlo.add %a, %b : tensor<ui8>
      stablehlo.return %sum : tensor<ui8>
  }) : (tensor<5xui8>, tensor<ui8>) -> tensor<5xui8>""",
        lambda x: np.cumsum(x, dtype=np.uint8),
    ),
}


@trap(raises=CompilerError)
@pytest.mark.parametrize("kind", UNSIGNED)
def test_unsigned_integers(kind):
    op, of = UNSIGNED[kind]
    x = np.array([1, 2, 200, 4, 5], np.uint8)
    text = f"(%x: tensor<5xui8>) -> tensor<5xui8> {{\n  {op}\n  return %y : tensor<5xui8> }}"
    np.testing.assert_array_equal(raw(text, x)[0], of(x))


SCATTERED = """(%x: tensor<4x1xi1>, %i: tensor<2x1xi32>, %u: tensor<2x1xi1>) -> tensor<4x1xi1> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<i1>, %b: tensor<i1>):
      %sum = stablehlo.add %a, %b : tensor<i1>
      stablehlo.return %sum : tensor<i1>
  }) : (tensor<4x1xi1>, tensor<2x1xi32>, tensor<2x1xi1>) -> tensor<4x1xi1>
  return %y : tensor<4x1xi1> }"""


@trap
def test_sums_of_booleans():
    """The sum of two truth values is whether one of them is true."""
    twice = np.full((2, 1), 2, np.int32), np.ones((2, 1), np.bool_)
    (got,) = raw(SCATTERED, np.zeros((4, 1), np.bool_), *twice)
    np.testing.assert_array_equal(got[:, 0], [False, False, True, False])


APPLIED = SCATTERED.replace("stablehlo.add %a, %b", "stablehlo.round_nearest_even %a")


@trap(raises=CompilerError)
def test_roundings_in_a_scatter():
    x = np.array([[0.6], [1.6], [2.6], [3.6]], np.float32)
    given = x, np.array([[3], [0]], np.int32), np.ones((2, 1), np.float32)
    np.testing.assert_allclose(
        raw(APPLIED.replace("i1>", "f32>"), *given)[0][:, 0], [1, 1.6, 2.6, 4]
    )


BATCHED = """(%x: tensor<3x6xf32>, %i: tensor<3x1xi32>, %u: tensor<3x2xf32>) -> tensor<3x6xf32> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0],
    scatter_dims_to_operand_dims = [1], index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      stablehlo.return %b : tensor<f32>
  }) : (tensor<3x6xf32>, tensor<3x1xi32>, tensor<3x2xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32> }"""


@trap(raises=CompilerError)
def test_scatters_with_batches():
    given = np.zeros((3, 6), np.float32), np.ones((3, 1), np.int32), np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(raw(BATCHED, *given)[0], [[0, 1, 1, 0, 0, 0]] * 3)


NUMBER = """(%x: tensor<f32>) -> tensor<f32> {
  %y = stablehlo.dynamic_slice %x, sizes = [] : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32> }"""


@trap(raises=CompilerError)
def test_a_slice_of_a_number():
    assert raw(NUMBER, np.float32(3))[0] == 3


EMPTY = """(%x: tensor<3x0xf32>, %w: tensor<0x8xf32>) -> tensor<3x8xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<3x0xf32>, tensor<0x8xf32>) -> tensor<3x8xf32>
  return %y : tensor<3x8xf32> }"""


@trap(raises=CompilerError)
def test_a_sum_over_nothing():
    assert not raw(EMPTY, np.zeros((3, 0), np.float32), np.zeros((0, 8), np.float32))[0].any()


NIBBLES = """(%x: tensor<3xi8>) -> tensor<3xi8> {
  %n = stablehlo.convert %x : (tensor<3xi8>) -> tensor<3xi4>
  %b = stablehlo.optimization_barrier %n : tensor<3xi4>
  %y = stablehlo.convert %b : (tensor<3xi4>) -> tensor<3xi8>
  return %y : tensor<3xi8> }"""


@trap(raises=CompilerError)
def test_integers_of_four_bits():
    x = np.array([-8, 3, 7], np.int8)
    np.testing.assert_array_equal(raw(NIBBLES, x)[0], x)


POWER = """(%x: tensor<4xKIND>, %y: tensor<4xKIND>) -> tensor<4xKIND> {
  %z = stablehlo.power %x, %y : tensor<4xKIND>
  return %z : tensor<4xKIND> }"""


@trap
def test_complex_powers():
    x, y = np.zeros(4, np.complex64), np.full(4, 2 + 1j, np.complex64)
    np.testing.assert_array_equal(raw(POWER.replace("KIND", "complex<f32>"), x, y)[0], x)


ROUNDED = b"""func.func @main(%x: tensor<8xi32>) -> tensor<8xbf16> {
  %y = stablehlo.convert %x : (tensor<8xi32>) -> tensor<8xbf16>
  return %y : tensor<8xbf16> }"""
HASWELL = (
    "--iree-llvmcpu-target-triple=x86_64-unknown-linux-gnu",
    "--iree-llvmcpu-target-cpu=haswell",
)


@trap(raises=UserError)
def test_integers_to_bfloat16():
    compile_module(ROUNDED, flags=(*HOST_FLAGS[:2], *HASWELL), keep_dump=False)


MOVED = """(%x: tensor<2x4xi32>) -> tensor<4x2xbf16> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
  %f = stablehlo.convert %x : (tensor<2x4xi32>) -> tensor<2x4xf32>
  %m = stablehlo.multiply %f, %ones : tensor<2x4xf32>
  %t = stablehlo.transpose %m, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
  %y = stablehlo.convert %t : (tensor<4x2xf32>) -> tensor<4x2xbf16>
  return %y : tensor<4x2xbf16> }"""


def test_integers_that_are_moved_before_they_become_bfloat16():
    x = np.arange(-3, 5, dtype=np.int32).reshape(2, 4) * 257
    (got,) = mended("round-to-bfloat16", MOVED, x)
    np.testing.assert_array_equal(got, x.T.astype(np.float32).astype(got.dtype))


# Truth values that are gathered, made numbers, reshaped and multiplied by, as in a step of a masked
# loop: in larger programs IREE converts the numbers back to truth values, and refuses that.
GATHERED = """(%b: tensor<4x1x1xi1>, %x: tensor<1x8xf32>) -> tensor<1x8xf32> {
  %i = stablehlo.constant dense<3> : tensor<1xi32>
  %g = "stablehlo.torch_index_select"(%b, %i) <{batch_dims = 0 : i64, dim = 0 : i64}>
    : (tensor<4x1x1xi1>, tensor<1xi32>) -> tensor<1x1x1xi1>
  %c = stablehlo.convert %g : (tensor<1x1x1xi1>) -> tensor<1x1x1xf32>
  %r = stablehlo.reshape %c : (tensor<1x1x1xf32>) -> tensor<1x1xf32>
  %m = stablehlo.broadcast_in_dim %r, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<1x8xf32>
  %y = stablehlo.multiply %m, %x : tensor<1x8xf32>
  return %y : tensor<1x8xf32> }"""
CHOSEN = np.array([1, 1, 1, 0], bool).reshape(4, 1, 1)
EIGHT = np.arange(8, dtype=np.float32)[None]


def test_gathered_truth_values_written():
    np.testing.assert_array_equal(mended("plain-booleans", GATHERED, CHOSEN, EIGHT)[0], 0 * EIGHT)


def test_truth_values_of_numbers():
    text = """(%x: tensor<1x2x3xf32>) -> tensor<2x3xi1> {
  %0 = stablehlo.negate %x : tensor<1x2x3xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x2x3xf32>) -> tensor<2x3xf32>
  %2 = stablehlo.convert %1 : (tensor<2x3xf32>) -> tensor<2x3xi1>
  return %2 : tensor<2x3xi1> }"""
    x = np.array([[[0, -0.0, 1], [np.nan, -np.inf, 1e-30]]], np.float32)
    (got,) = mended("plain-booleans", text, x)
    np.testing.assert_array_equal(got, [[False, False, True], [True, True, True]])
