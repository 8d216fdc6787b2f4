"""Defects of the MLIR that jaxlib brings."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from jq.formats import Encoding, get_format
from jq.ir import at, run_passes
from jq.ir.arrays import StableHloOps
from jq.ir.build import replace
from jq.ir.oracle.xla import XlaExecutable
from tests.support.texts import load
from tests.traps.helpers import trap

# The pass that lowers quantized types truncates where it should round, and wraps.
QUANTIZED = """(%x: tensor<1x2xi8>, %w: tensor<2x2xi8>) -> tensor<1x2xi8> {
  %a = stablehlo.bitcast_convert %x
       : (tensor<1x2xi8>) -> tensor<1x2x!quant.uniform<i8:f32, 1.0>>
  %b = stablehlo.bitcast_convert %w
       : (tensor<2x2xi8>) -> tensor<2x2x!quant.uniform<i8:f32, 1.0>>
  %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
       : (tensor<1x2x!quant.uniform<i8:f32, 1.0>>, tensor<2x2x!quant.uniform<i8:f32, 1.0>>)
       -> tensor<1x2x!quant.uniform<i8:f32, 4.0>>
  %z = stablehlo.bitcast_convert %y
       : (tensor<1x2x!quant.uniform<i8:f32, 4.0>>) -> tensor<1x2xi8>
  return %z : tensor<1x2xi8> }"""
X = np.array([[3, 100]], np.int8)
W = np.array([[1, 100], [0, 100]], np.int8)
EXPECTED = np.array([[1, 127]], np.int8)  # round(3 / 4), saturate(10300 / 4)


@trap
def test_quantized_types_round_and_saturate():
    program = load(QUANTIZED)
    run_passes(program.module, "func.func(stablehlo-legalize-quant-to-math)")
    np.testing.assert_array_equal(XlaExecutable(program)(X, W)[0], EXPECTED)


def test_our_codes_round_and_saturate():
    enc = Encoding("int8", (1, 2), (0, 0), options=(("divisor", "absmax/127.5"),))
    sums = (X.astype(np.int32) @ W.astype(np.int32)).astype(np.float32)
    got = get_format("int8").quantize(sums, np.full((1, 1), 4, np.float32), None, enc)
    np.testing.assert_array_equal(got, EXPECTED)


# Erasing an op whose result is in use raises nothing, and crashes later.
ADDS = """(%x: tensor<2xf32>) -> tensor<2xf32> {
  %a = stablehlo.add %x, %x : tensor<2xf32>
  %b = stablehlo.add %a, %a : tensor<2xf32>
  return %b : tensor<2xf32> }"""
ERASE = f"""
from tests.support.texts import load
program = load('''{ADDS}''')
next(program.walk()).operation.erase()
print("erased", flush=True)
"""


@trap
def test_erasing_a_used_op_is_refused():
    """Nothing stops it, so every op is erased through `replace` or when it has no uses."""
    done = subprocess.run([sys.executable, "-c", ERASE], capture_output=True, text=True, timeout=60)
    assert "ImportError" in done.stderr or "erased" not in done.stdout


def test_replace_leaves_no_use_behind():
    program = load(ADDS)
    first = next(program.walk())
    with at(first):
        value = StableHloOps().mul(first.operands[0], first.operands[0])
    replace(first, [value])
    program.verify()
    got = XlaExecutable(program)(np.array([3, 5], np.float32))[0]
    np.testing.assert_array_equal(got, [18, 50])


# XLA's own evaluator counts from the sign on: -32 zeros in front of a negative int32.
LEADING = """() -> tensor<3xi32> {
  %x = stablehlo.constant dense<[-4, 1, 0]> : tensor<3xi32>
  %y = stablehlo.count_leading_zeros %x : tensor<3xi32>
  return %y : tensor<3xi32> }"""


@trap
def test_xla_counts_leading_zeros_of_negative_constants():
    np.testing.assert_array_equal(XlaExecutable(load(LEADING))()[0], [0, 31, 32])


# Features in front of the batch, and the interpreter's own index arithmetic ends the process.
CONVOLVED = """(%x: tensor<2x3x1xf32>, %w: tensor<1x1x4xf32>) -> tensor<4x2x3xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[f, b, 0], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x3x1xf32>, tensor<1x1x4xf32>) -> tensor<4x2x3xf32>
  return %y : tensor<4x2x3xf32> }"""
EVALUATE = f"""
from jq.ir import editing, ir, stablehlo
from tests.support.texts import load
program = load('''{CONVOLVED}''')
with editing():
    ones = [ir.Attribute.parse(f"dense<1.0> : {{i.type}}") for i in program.body.arguments]
    print(stablehlo.eval_module(program.module, ones)[0])
"""


@trap
def test_features_may_come_first_in_the_interpreter():
    done = subprocess.run([sys.executable, "-c", EVALUATE], capture_output=True, text=True)
    assert "ImportError" not in done.stderr
    assert "dense<1.0" in done.stdout, done.stderr
