// RUN: mark-edges
// SETTINGS: placement=hybrid
// Only for placement=early.
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32> {jq.weight = "w"}, %b: tensor<4x4xf32> {jq.weight = "b"}) -> tensor<4x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<4x4xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.add %0, %b : tensor<4x4xf32>
  %2 = stablehlo.maximum %1, %zero : tensor<4x4xf32>
  %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %4 = stablehlo.add %3, %x : tensor<4x4xf32>
  %5 = stablehlo.tanh %4 : tensor<4x4xf32>
  return %5 : tensor<4x4xf32>
}
// CHECK: changed: none
