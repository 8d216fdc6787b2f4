// RUN: place-edges
// SETTINGS: activations.format=int8 activations.mode=static activations.granularity=per-tensor weights.format=float
// ERROR: no calibrated range: the calibration data did not reach this tensor [a]
func.func private @e(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = stablehlo.composite "jq.edge" %x {composite_attributes = {tensor = "a"}, decomposition = @e} : (tensor<4xf32>) -> tensor<4xf32>
  return %a : tensor<4xf32>
}
