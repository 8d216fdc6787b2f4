"""What IREE 3.13 gets wrong, each with the place that works around it.

A test that fails here is good news: look whether its workaround can go.
"""

from __future__ import annotations

import numpy as np
import pytest
from iree import runtime as rt

from jq.base.errors import CompilerError
from jq.iree.compiler import HOST_FLAGS, compile_module
from tests.iree.helpers import make_program, run

RNG = np.random.default_rng(6)


def test_unsigned_products_are_taken_as_signed() -> None:
    """`shield-unsigned`."""
    text = """func.func public @main(%x: tensor<4x64xui8>, %w: tensor<64x32xi8>)
        -> tensor<4x32xi32> {
      %0 = stablehlo.convert %x : (tensor<4x64xui8>) -> tensor<4x64xi32>
      %1 = stablehlo.convert %w : (tensor<64x32xi8>) -> tensor<64x32xi32>
      %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]
        : (tensor<4x64xi32>, tensor<64x32xi32>) -> tensor<4x32xi32>
      return %2 : tensor<4x32xi32>
    }"""
    x = RNG.integers(128, 256, (4, 64)).astype(np.uint8)
    w = RNG.integers(-128, 128, (64, 32)).astype(np.int8)
    (y,) = run(text, x, w)
    np.testing.assert_array_equal(y, x.view(np.int8).astype(np.int32) @ w.astype(np.int32))


def test_depthwise_convolution_to_a_wider_type() -> None:
    """`widen-depthwise`. With a constant filter it may compile, and is wrong."""
    text = """func.func public @main(%x: tensor<1x8x8x4xi8>, %w: tensor<3x3x1x4xi8>)
        -> tensor<1x6x6x4xi32> {
      %0 = stablehlo.convolution(%x, %w)
        dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {stride = [1, 1], pad = [[0, 0], [0, 0]]}
        {batch_group_count = 1 : i64, feature_group_count = 4 : i64}
        : (tensor<1x8x8x4xi8>, tensor<3x3x1x4xi8>) -> tensor<1x6x6x4xi32>
      return %0 : tensor<1x6x6x4xi32>
    }"""
    with pytest.raises(CompilerError):
        compile_module(text.encode())


def test_product_over_nothing_beside_a_conversion() -> None:
    """`multiply-outer`."""
    text = """func.func public @main(%x: tensor<15x1xi8>, %w: tensor<1x8xi8>)
        -> (tensor<3x5x8xi32>, tensor<3x5x1xi32>) {
      %a = stablehlo.reshape %x : (tensor<15x1xi8>) -> tensor<3x5x1xi8>
      %b = stablehlo.convert %a : (tensor<3x5x1xi8>) -> tensor<3x5x1xi32>
      %y = stablehlo.dot_general %a, %w, contracting_dims = [2] x [0]
        : (tensor<3x5x1xi8>, tensor<1x8xi8>) -> tensor<3x5x8xi32>
      return %y, %b : tensor<3x5x8xi32>, tensor<3x5x1xi32>
    }"""
    with pytest.raises(CompilerError):
        compile_module(text.encode())


def test_products_of_truth_values_are_not_packed() -> None:
    """`shield-booleans`."""
    text = """func.func public @main(%x: tensor<64x33xi1>, %w: tensor<33x48xf32>)
        -> tensor<64x48xf32> {
      %0 = stablehlo.convert %x : (tensor<64x33xi1>) -> tensor<64x33xf32>
      %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0]
        : (tensor<64x33xf32>, tensor<33x48xf32>) -> tensor<64x48xf32>
      return %1 : tensor<64x48xf32>
    }"""
    packed = (*HOST_FLAGS, "--iree-opt-data-tiling")
    with pytest.raises(CompilerError, match="materialization"):
        compile_module(text.encode(), flags=packed, keep_dump=False)
    shielded = text.replace(
        "tensor<64x33xi1>) -> tensor<64x33xf32>\n",
        "tensor<64x33xi1>) -> tensor<64x33xf32>\n"
        "%b = stablehlo.optimization_barrier %0 : tensor<64x33xf32>\n",
    ).replace("dot_general %0", "dot_general %b")
    assert compile_module(shielded.encode(), flags=packed, keep_dump=False).vmfb


def test_conversion_to_integers_does_not_saturate() -> None:
    """`saturate-converts`. StableHLO leaves it open; XLA saturates, NaN is 0.

    Here it depends on the processor: 300 wraps to 44 with AVX-512 and is 127 without, where a
    narrowing instruction saturates. What no 32-bit integer holds is wrong on each.
    """
    text = """func.func public @main(%x: tensor<3xf32>) -> tensor<3xi8> {
      %0 = stablehlo.convert %x : (tensor<3xf32>) -> tensor<3xi8>
      return %0 : tensor<3xi8>
    }"""
    (y,) = run(text, np.array([1e10, 300.0, 5.0], np.float32))
    assert y[0] in (0, -128)
    assert y[1:].tolist() in ([44, 5], [127, 5])


@pytest.mark.parametrize("shape", [(16, 16), (64, 65)])
def test_four_bit_constants_do_not_compile(shape: tuple[int, int]) -> None:
    """`jq/iree/handover.py` refuses them; formats pack nibbles in int8."""
    dims, values = "x".join(map(str, shape)), RNG.integers(-8, 8, shape).tolist()
    text = f"""func.func public @main(%x: tensor<{dims}xf32>) -> tensor<{dims}xf32> {{
      %w = stablehlo.constant dense<{values}> : tensor<{dims}xi4>
      %0 = stablehlo.convert %w : (tensor<{dims}xi4>) -> tensor<{dims}xf32>
      %1 = stablehlo.add %0, %x : tensor<{dims}xf32>
      return %1 : tensor<{dims}xf32>
    }}"""
    with pytest.raises(CompilerError, match="failed to legalize"):
        compile_module(text.encode())


def test_device_arrays_of_the_caller_are_written() -> None:
    """`jq/iree/runtime.py` copies every input to a buffer of its own."""
    text = """func.func public @main(%x: tensor<64x8xf32>, %u: tensor<1x8xf32>, %i: tensor<i32>)
        -> tensor<64x8xf32> {
      %0 = stablehlo.dynamic_update_slice %x, %u, %i, %i
        : (tensor<64x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<64x8xf32>
      return %0 : tensor<64x8xf32>
    }"""
    config = rt.Config("local-sync")
    module = rt.VmModule.copy_buffer(config.vm_instance, compile_module(text.encode()).vmfb)
    main = rt.load_vm_module(module, config)["main"]
    x = rt.asdevicearray(config.device, np.zeros((64, 8), np.float32))
    main(x, np.ones((1, 8), np.float32), np.int32(0))
    assert x.to_host().sum() == 8


def test_bfloat16_resources_inside_a_dispatch() -> None:
    """`jq/iree/handover.py` makes small constants dense ones."""
    text = """module {
      func.func public @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
        %w = stablehlo.constant dense_resource<w> : tensor<4x8xbf16>
        %0 = stablehlo.convert %w : (tensor<4x8xbf16>) -> tensor<4x8xf32>
        %1 = stablehlo.add %0, %x : tensor<4x8xf32>
        return %1 : tensor<4x8xf32>
      }
    }
    {-# dialect_resources: { builtin: { w: "0x02000000VALUES" } } #-}"""
    with pytest.raises(CompilerError, match=r"arith\.constant"):
        compile_module(text.replace("VALUES", "803F" * 32).encode())


def test_parameters_are_not_checked() -> None:
    """`jq/artifact/parameters.py` does: for the runtime, only the size has to fit."""
    from jq.iree.handover import handover
    from jq.iree.runtime import Executable

    text = """func.func public @main(%x: tensor<2x3xf32>, %w: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = stablehlo.add %x, %w : tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }"""
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = handover(make_program(text, {"w": w}), inline_limit=0)
    vmfb = compile_module(given.bytecode, flags=HOST_FLAGS).vmfb
    call = Executable.load(vmfb, {"w": w.view(np.int32).reshape(3, 2)})
    np.testing.assert_array_equal(call(np.zeros((2, 3), np.float32))[0], w)


def test_a_microkernel_gives_no_number() -> None:
    """`jq/kernels/schedule/prefetch.py` lets it store the number in a tensor."""
    text = """flow.executable private @e {
      flow.executable.export public @e workgroups() -> (index, index, index) {
        %c1 = arith.constant 1 : index
        flow.return %c1, %c1, %c1 : index, index, index
      }
      builtin.module {
        func.func private @number(%base: memref<i8>, %offset: index) -> i64 {
          %0 = arith.index_cast %offset : index to i64
          return %0 : i64
        }
        func.func @e(%in: !iree_tensor_ext.dispatch.tensor<readonly:tensor<64xi8>>,
                     %out: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1xi64>>) {
          %0 = iree_tensor_ext.dispatch.tensor.load %in, offsets = [0], sizes = [64], strides = [1]
            : !iree_tensor_ext.dispatch.tensor<readonly:tensor<64xi8>> -> tensor<64xi8>
          %1 = iree_codegen.ukernel.generic {calls = @number} "number" ins(%0 : tensor<64xi8>)
            strided_dims([[]]) -> i64
          %2 = tensor.from_elements %1 : tensor<1xi64>
          iree_tensor_ext.dispatch.tensor.store %2, %out, offsets = [0], sizes = [1], strides = [1]
            : tensor<1xi64> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1xi64>>
          return
        }
      }
    }
    func.func public @main(%x: tensor<64xi8>) -> tensor<1xi64> {
      %0 = flow.dispatch @e::@e(%x) : (tensor<64xi8>) -> tensor<1xi64>
      return %0 : tensor<1xi64>
    }"""
    with pytest.raises(CompilerError, match="crashed|null operand"):
        compile_module(text.encode())
