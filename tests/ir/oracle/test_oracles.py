"""XLA and the StableHLO interpreter run any program, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jq.base.errors import CompilerError, InternalError, UserError
from jq.ir import Program
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable
from tests.iree.helpers import compiled, make_program
from tests.support import texts
from tests.support.child import Child

RNG = np.random.default_rng(2)


def on_xla(program: Program, *inputs: Any) -> list[np.ndarray]:
    return XlaExecutable(program, strict=True)(*inputs)


def on_iree(program: Program, *inputs: Any) -> list[np.ndarray]:
    return compiled(program)(*inputs)


RUNNERS = pytest.mark.parametrize("run", [on_xla, interpret, on_iree])
Runner = Callable[..., list[np.ndarray]]

# A loop whose body uses values from outside, a composite and a weight.
LOOP = """module {
  func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>, %w: tensor<4xf32>)
      -> (tensor<4xf32>, tensor<4xf32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %0 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %0 : tensor<i1>
    } do {
      %0 = stablehlo.add %a, %w : tensor<4xf32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.composite "jq.twice" %0 {decomposition = @twice}
        : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %1, %2 : tensor<i32>, tensor<4xf32>
    }
    return %r#1, %x : tensor<4xf32>, tensor<4xf32>
  }
}"""


@RUNNERS
def test_loops_and_composites(run: Runner) -> None:
    program = make_program(LOOP, {"w": np.ones(4, np.float32)})
    x = np.arange(4, dtype=np.float32)
    y, same = run(program, x, np.int32(2))
    np.testing.assert_array_equal(y, ((x + 1) * 2 + 1) * 2)
    np.testing.assert_array_equal(same, x)
    assert "stablehlo.composite" in program.text()


@RUNNERS
@pytest.mark.parametrize("shape", [(), (3, 5), (0, 4)])
def test_element_types(run: Runner, shape: tuple[int, ...]) -> None:
    names = {
        "f32": np.float32,
        "f64": np.float64,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "i8": np.int8,
        "ui8": np.uint8,
        "i32": np.int32,
        "i64": np.int64,
        "i1": np.bool_,
    }
    arrays = [RNG.integers(0, 2 if n == "i1" else 99, shape).astype(t) for n, t in names.items()]
    kinds = [f"tensor<{''.join(f'{n}x' for n in shape)}{name}>" for name in names]
    args = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(kinds))
    values = ", ".join(f"%a{i}" for i in range(len(kinds)))
    program = make_program(
        f"func.func public @main({args}) -> ({', '.join(kinds)}) "
        f"{{ return {values} : {', '.join(kinds)} }}"
    )
    for y, array in zip(run(program, *arrays), arrays, strict=True):
        assert y.dtype == array.dtype
        np.testing.assert_array_equal(y, array)


BFLOAT16 = """func.func public @main(%x: tensor<300xbf16>, %e: tensor<300xbf16>)
    -> tensor<300xbf16> {
  %0 = stablehlo.add %x, %e : tensor<300xbf16>
  %1 = stablehlo.add %0, %e : tensor<300xbf16>
  %2 = stablehlo.subtract %1, %x : tensor<300xbf16>
  return %2 : tensor<300xbf16>
}"""
BFLOAT16_INPUTS = (np.ones(300, ml_dtypes.bfloat16), np.full(300, 2**-8, ml_dtypes.bfloat16))


@pytest.mark.parametrize("run", [on_xla, interpret])
def test_bfloat16_is_rounded_after_every_op(run: Runner) -> None:
    """1 + 2^-8 rounds to 1 in bfloat16; kept in float32, the sum would be 2^-7."""
    (y,) = run(make_program(BFLOAT16), *BFLOAT16_INPUTS)
    assert (y == 0).all()


def test_iree_keeps_bfloat16_in_float32() -> None:
    """Not a claim of ours: IREE 3.13 drops the rounding between fused bfloat16 ops."""
    (y,) = on_iree(make_program(BFLOAT16), *BFLOAT16_INPUTS)
    assert (y == 2**-7).all()


@RUNNERS
def test_integer_products(run: Runner) -> None:
    program = make_program(
        """func.func public @main(%x: tensor<5x33xi8>, %w: tensor<33x7xi8>) -> tensor<5x7xi32> {
          %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<5x33xi8>, tensor<33x7xi8>) -> tensor<5x7xi32>
          return %0 : tensor<5x7xi32>
        }""",
        {"w": RNG.integers(-128, 128, (33, 7)).astype(np.int8)},
    )
    x = RNG.integers(-128, 128, (5, 33)).astype(np.int8)
    want = x.astype(np.int32) @ program.weights["w"].astype(np.int32)
    np.testing.assert_array_equal(run(program, x)[0], want)


def test_xla_reads_inputs_only() -> None:
    program = make_program(LOOP, {"w": np.ones(4, np.float32)})
    execute = XlaExecutable(program)
    x = np.arange(4, dtype=np.float32)
    (_, same) = execute(x, np.int32(0))
    same[:] = 9
    np.testing.assert_array_equal(x, np.arange(4))
    np.testing.assert_array_equal(execute(x, np.int32(0))[0], x)


def test_errors() -> None:
    program = make_program(LOOP, {"w": np.ones(4, np.float32)})
    execute = XlaExecutable(program)
    with pytest.raises(UserError, match="2 inputs, not 1"):
        execute(np.zeros(4, np.float32))
    with pytest.raises(UserError, match=r"float64\[4\], the program takes float32\[4\] \[arg0\]"):
        execute(np.zeros(4), np.int32(1))
    with pytest.raises(CompilerError, match="XLA cannot compile"):
        XlaExecutable(
            make_program(
                """func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
                  %0 = stablehlo.custom_call @no_such_thing(%x) : (tensor<4xf32>) -> tensor<4xf32>
                  return %0 : tensor<4xf32>
                }"""
            )
        )


def test_a_program_that_calls_kernels_is_refused() -> None:
    """XLA would crash on a function without a body."""
    text = """module {
      func.func private @jq_kernel(%x: tensor<4xf32>) -> tensor<4xf32>
      func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %0 = call @jq_kernel(%x) : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }"""
    with pytest.raises(InternalError, match="kernels of ours"):
        XlaExecutable(make_program(text))


def test_a_convolution_is_added_up_in_the_type_of_its_result() -> None:
    """StableHLO 1.17's own interpreter adds in i8, which wraps."""
    program = texts.load("""(%x: tensor<1x3x2xi8>, %w: tensor<2x2x1xi8>) -> tensor<1x2x1xi32> {
      %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x3x2xi8>, tensor<2x2x1xi8>) -> tensor<1x2x1xi32>
      return %y : tensor<1x2x1xi32> }""")
    x, w = np.full((1, 3, 2), 100, np.int8), np.full((2, 2, 1), 127, np.int8)
    assert interpret(program, x, w)[0].tolist() == [[[50800], [50800]]]


@pytest.mark.parametrize("order", ["[b, f, 0]", "[f, b, 0]", "[0, f, b]", "[f, 0, b]"])
def test_a_convolution_has_its_features_anywhere(order: str) -> None:
    """StableHLO 1.17's own interpreter ends the process where they come before the batch."""
    sizes = {"b": 2, "f": 4, "0": 5}
    axes = order.strip("[]").split(", ")
    kind = f"tensor<{'x'.join(str(sizes[a]) for a in axes)}xf32>"
    program = texts.load(f"""(%x: tensor<2x6x3xf32>, %w: tensor<2x3x4xf32>) -> {kind} {{
      %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->{order}, window = {{}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
        : (tensor<2x6x3xf32>, tensor<2x3x4xf32>) -> {kind}
      return %y : {kind} }}""")
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-9, 9, s).astype(np.float32) for s in ((2, 6, 3), (2, 3, 4)))
    want = sum(np.einsum("bti,io->bto", x[:, k : k + 5], w[k]) for k in range(2))
    want = want.transpose(["b0f".index(a) for a in axes])
    np.testing.assert_array_equal(interpret(program, x, w)[0], want)


# The tensor that is scattered into is read again: once by what is scattered, once by the sum.
SCATTERED = """(%x: tensor<3xf32>) -> tensor<3xf32> {
  %i = stablehlo.constant dense<[[1], [2], [2]]> : tensor<3x1xi32>
  %0 = "stablehlo.scatter"(%x, %i, %x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
        scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}
    : (tensor<3xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<3xf32>
  %1 = stablehlo.add %0, %x : tensor<3xf32>
  return %1 : tensor<3xf32> }"""


@pytest.mark.parametrize("run", [on_xla, interpret])
def test_what_is_scattered_into_keeps_its_numbers(run: Runner) -> None:
    x = np.array([1, 10, 100], np.float32)
    np.testing.assert_array_equal(run(texts.load(SCATTERED), x)[0], [2, 21, 310])


def test_a_strict_program_rounds_its_products_in_front_of_their_sums() -> None:
    """A fused multiply and add would round once."""
    program = texts.load(
        "(%a: tensor<99xf32>, %b: tensor<99xf32>, %c: tensor<99xf32>) -> tensor<99xf32> {\n"
        "%0 = stablehlo.multiply %a, %b : tensor<99xf32>\n"
        "%1 = stablehlo.add %0, %c : tensor<99xf32>\n"
        "return %1 : tensor<99xf32> }"
    )
    a, b, c = RNG.standard_normal((3, 99)).astype(np.float32)
    np.testing.assert_array_equal(on_xla(program, a, b, c)[0], a * b + c)


# A transpose that XLA's simplifier, off in strict runs, would have made a change of layout.
TRANSPOSED = """(%x: tensor<11x1x1x3xf32>) -> tensor<1x1x3x11xf32> {
  %0 = stablehlo.constant dense<16.0> : tensor<1x1x3x11xf32>
  %1 = stablehlo.constant dense<-128.0> : tensor<1x1x3x11xf32>
  %2 = stablehlo.constant dense<128.0> : tensor<1x1x3x11xf32>
  %3 = stablehlo.constant dense<0.0625> : tensor<1x1x3x11xf32>
  %4 = stablehlo.constant dense<-1.0> : tensor<f32>
  %5 = stablehlo.constant dense<1.0> : tensor<f32>
  %6 = stablehlo.constant dense<0.625> : tensor<1x1x3x11xf32>
  %7 = stablehlo.constant dense<-512.0> : tensor<1x1x3x11xf32>
  %8 = stablehlo.constant dense<512.0> : tensor<1x1x3x11xf32>
  %t = stablehlo.transpose %x, dims = [1, 2, 3, 0]
    : (tensor<11x1x1x3xf32>) -> tensor<1x1x3x11xf32>
  %a = stablehlo.multiply %t, %0 : tensor<1x1x3x11xf32>
  %b = stablehlo.round_nearest_even %a : tensor<1x1x3x11xf32>
  %c = stablehlo.clamp %1, %b, %2 : tensor<1x1x3x11xf32>
  %d = stablehlo.multiply %c, %3 : tensor<1x1x3x11xf32>
  %e = stablehlo.clamp %4, %d, %5
    : (tensor<f32>, tensor<1x1x3x11xf32>, tensor<f32>) -> tensor<1x1x3x11xf32>
  %f = stablehlo.sine %e : tensor<1x1x3x11xf32>
  %g = stablehlo.multiply %f, %0 : tensor<1x1x3x11xf32>
  %h = stablehlo.add %g, %6 : tensor<1x1x3x11xf32>
  %i = stablehlo.clamp %7, %h, %8 : tensor<1x1x3x11xf32>
  return %i : tensor<1x1x3x11xf32>
}"""


def transposed() -> float:
    (found,) = on_xla(texts.load(TRANSPOSED), np.zeros((11, 1, 1, 3), np.float32))
    return float(found.max())


def test_xla_does_not_crash(child: Child) -> None:
    """Its fusion emitters do, while they compile this."""
    assert child.call(transposed) == 0.625


def test_xla_takes_away_negative_padding() -> None:
    """Its code in place of the fusion emitters does not."""
    text = """(%x: tensor<6x4xf32>) -> tensor<4x4xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %y = stablehlo.pad %x, %z, low = [-1, 0], high = [-1, 0], interior = [0, 0]
        : (tensor<6x4xf32>, tensor<f32>) -> tensor<4x4xf32>
      return %y : tensor<4x4xf32> }"""
    x = RNG.standard_normal((6, 4)).astype(np.float32)
    np.testing.assert_array_equal(on_xla(texts.load(text), x)[0], x[1:-1])
