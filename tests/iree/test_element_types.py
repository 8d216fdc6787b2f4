"""IREE has no 4-bit floats: told when it does."""

from __future__ import annotations

from jq.base.errors import CompilerError
from jq.iree.compiler import HOST_FLAGS, compile_module
from tests.traps.helpers import trap

TEXT = b"""func.func @main(%x: tensor<4x8xf4E2M1FN>) -> tensor<4x8xf32> {
  %0 = stablehlo.convert %x : (tensor<4x8xf4E2M1FN>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}"""


@trap(raises=CompilerError)
def test_floats_of_4_bits_are_compiled():
    """docs/how-to/iree-integer-math.md says that they are not."""
    compile_module(TEXT, flags=HOST_FLAGS, keep_dump=False)
