"""The portable artifact of a module on which passes have noted what they decided."""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.ir.mlir_context import context
from jq.ir.portable import portable

MODULE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32>
  attributes {jq.decisions = {w = {smoothing = array<i32: 1, 2>}}} {
  %y = stablehlo.add %x, %x {jq.name = "sum", jq.scales = array<i32: 1>} : tensor<4xf32>
  return %y : tensor<4xf32>
}"""


def test_notes_are_left_out_and_stay_in_the_module() -> None:
    with context() as known:
        module = ir.Module.parse(MODULE)
        found, _ = portable(module)
        text = str(stablehlo.deserialize_portable_artifact(known, found))
        assert "jq." not in text and "stablehlo.add" in text
        assert "jq.decisions" in str(module)
