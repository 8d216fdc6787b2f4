"""Weights in low bits that IREE 3.13 stores as floats, or reads wrongly."""

from __future__ import annotations

import re

import numpy as np
import pytest

from jq.base.errors import CompilerError
from jq.formats import NUMPY, get_format
from jq.ir import Program
from jq.iree import compiler
from jq.iree.handover import handover
from jq.passes.base import PassContext
from jq.passes.pipeline import load_pipeline, make_plan, prepare, rewrite
from jq.target.target import load_target
from tests.support.texts import load, run_iree
from tests.traps.helpers import raw, trap

RNG = np.random.default_rng(0)

# What is computed from constants is evaluated and stored when it grows by less than 1 MiB: small
# weights come back as float32.
PRODUCT = """(%x: tensor<5x64xf32>, %w: tensor<64x48xi8> {jq.weight = "w"}) -> tensor<5x48xf32> {
  %f = stablehlo.convert %w : (tensor<64x48xi8>) -> tensor<64x48xf32>
  %s = stablehlo.constant dense<0.1> : tensor<64x48xf32>
  %m = stablehlo.multiply %f, %s : tensor<64x48xf32>
  %y = stablehlo.dot_general %x, %m, contracting_dims = [1] x [0]
       : (tensor<5x64xf32>, tensor<64x48xf32>) -> tensor<5x48xf32>
  return %y : tensor<5x48xf32> }"""
CODES = RNG.integers(-128, 128, (64, 48)).astype(np.int8)


def stored() -> set[str]:
    """Types of the constants of the compiler's program after its folding."""
    bytecode = handover(load(PRODUCT, {"w": CODES})).bytecode
    program = compiler.compile_module(bytecode, flags=compiler.HOST_FLAGS).program or ""
    return set(re.findall(r"dense(?:_resource)?<[^\n]*?> : (tensor<64x48x\w+>)", program))


@trap
def test_small_weights_stay_bytes_by_default(monkeypatch):
    flags = tuple(f for f in compiler.BASE_FLAGS if "const-expr" not in f)
    monkeypatch.setattr(compiler, "BASE_FLAGS", flags)
    assert stored() == {"tensor<64x48xi8>"}


def test_small_weights_stay_bytes_with_our_flags():
    assert stored() == {"tensor<64x48xi8>"}


# Constants of 4 bits are wrong, or refused, at shapes of odd size; ours are nibbles in bytes.
NIBBLES = RNG.integers(-8, 8, (64, 33))


def four_bits() -> str:
    rows = ", ".join(f"[{', '.join(map(str, row))}]" for row in NIBBLES)
    return f"""(%x: tensor<1x64xi32>) -> tensor<1x33xi32> {{
      %w = stablehlo.constant dense<[{rows}]> : tensor<64x33xi4>
      %c = stablehlo.convert %w : (tensor<64x33xi4>) -> tensor<64x33xi32>
      %y = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0]
           : (tensor<1x64xi32>, tensor<64x33xi32>) -> tensor<1x33xi32>
      return %y : tensor<1x33xi32> }}"""


@trap
def test_constants_of_four_bits():
    x = RNG.integers(-9, 9, (1, 64)).astype(np.int32)
    try:
        (got,) = raw(four_bits(), x)
    except CompilerError as error:
        pytest.fail(str(error))
    np.testing.assert_array_equal(got, x @ NIBBLES)


@pytest.mark.parametrize(("format", "columns"), [("int4", 33), ("int2", 3), ("mxfp4", 1)])
def test_packed_weights_at_odd_shapes(format, columns):
    """A product with the identity gives the stored weight itself, bit for bit."""
    w = RNG.standard_normal((64, columns)).astype(np.float32)
    text = f"""(%x: tensor<64x64xf32>, %w: tensor<64x{columns}xf32> {{jq.weight = "w"}})
        -> tensor<64x{columns}xf32> {{
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
           : (tensor<64x64xf32>, tensor<64x{columns}xf32>) -> tensor<64x{columns}xf32>
      return %y : tensor<64x{columns}xf32> }}"""
    settings = {"weights.format": format, "min_elements": 1, "float_type": "float32"}
    pipeline, target = load_pipeline("int8-weight-only", settings), load_target("llvm-cpu")
    program: Program = prepare(load(text, {"w": w}), pipeline, target)
    plan = make_plan(program, pipeline, target)
    levels = rewrite(program, pipeline, PassContext(plan, pipeline.settings, target))
    fmt, enc = get_format(format), plan.weights["w"]
    want = fmt.decode(NUMPY, fmt.encode(w, enc), enc)
    got = run_iree(levels["target"], np.eye(64, dtype=np.float32))[0]
    np.testing.assert_array_equal(got, want)
