// RUN: place-weights, place-activations
// SETTINGS: weights.format=int8 activations.format=int8
// RULE: w: float
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// CHECK: changed: none
// CHECK-NOT: composite
