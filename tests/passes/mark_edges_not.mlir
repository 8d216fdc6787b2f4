// RUN: mark-edges
// SETTINGS: placement=early
// What is computed from no float input stays float: it lies in front of the first quantize.
func.func @main(%i: tensor<4xi32>, %w: tensor<4xf32> {jq.weight = "w"}) -> tensor<4xf32> {
  %0 = stablehlo.convert %i : (tensor<4xi32>) -> tensor<4xf32>
  %1 = stablehlo.multiply %0, %w : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// CHECK: changed: none
