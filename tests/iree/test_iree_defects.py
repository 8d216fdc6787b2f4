"""Traps that no text alone can be: flags, parameters, the runtime's buffers, IREE's own ops."""

from __future__ import annotations

import numpy as np
import pytest
from iree import runtime as rt

from jq.base.errors import CompilerError
from jq.iree.compiler import HOST_FLAGS, compile_module
from jq.iree.handover import handover
from jq.iree.runtime import Executable
from jq.passes.base import PassContext
from jq.passes.iree_mends.products import PlainBooleans
from jq.planning.decisions import QuantPlan
from jq.target.settings import Settings
from jq.target.target import load_target
from tests.iree.helpers import make_program
from tests.traps.helpers import trap

PACKED = (*HOST_FLAGS, "--iree-opt-data-tiling")
CHOSEN = """func.func public @main(%x: tensor<64x33xi1>, %w: tensor<33x48xf32>)
    -> tensor<64x48xf32> {
  %0 = stablehlo.convert %x : (tensor<64x33xi1>) -> tensor<64x33xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0]
    : (tensor<64x33xf32>, tensor<33x48xf32>) -> tensor<64x48xf32>
  return %1 : tensor<64x48xf32>
}"""


@trap(raises=CompilerError)
def test_products_of_truth_values_are_packed() -> None:
    compile_module(CHOSEN.encode(), flags=PACKED, keep_dump=False)


def test_products_of_written_truth_values_are_packed() -> None:
    program = make_program(CHOSEN, {})
    PlainBooleans().run(
        program, PassContext(QuantPlan((), {}), Settings(), load_target("llvm-cpu"))
    )
    given = handover(program, inline_limit=0).bytecode
    assert compile_module(given, flags=PACKED, keep_dump=False).vmfb


@trap
def test_device_arrays_of_the_caller_are_kept() -> None:
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
    assert x.to_host().sum() == 0


@trap(raises=CompilerError)
def test_bfloat16_resources_inside_a_dispatch() -> None:
    text = """module {
      func.func public @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
        %w = stablehlo.constant dense_resource<w> : tensor<4x8xbf16>
        %0 = stablehlo.convert %w : (tensor<4x8xbf16>) -> tensor<4x8xf32>
        %1 = stablehlo.add %0, %x : tensor<4x8xf32>
        return %1 : tensor<4x8xf32>
      }
    }
    {-# dialect_resources: { builtin: { w: "0x02000000VALUES" } } #-}"""
    compile_module(text.replace("VALUES", "803F" * 32).encode())


@trap
def test_parameters_are_checked() -> None:
    text = """func.func public @main(%x: tensor<2x3xf32>, %w: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = stablehlo.add %x, %w : tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }"""
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = handover(make_program(text, {"w": w}), inline_limit=0)
    vmfb = compile_module(given.bytecode, flags=HOST_FLAGS).vmfb
    with pytest.raises(Exception, match="w"):
        Executable.load(vmfb, {"w": w.view(np.int32).reshape(3, 2)})(np.zeros((2, 3), np.float32))


@trap(raises=CompilerError)
def test_a_microkernel_gives_a_number() -> None:
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
    compile_module(text.encode())
