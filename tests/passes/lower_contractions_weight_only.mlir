// RUN: place-weights, lower-contractions, lower-markers
// SETTINGS: weights.format=int8 activations.format=float
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// The codes are converted, and scaled after the product.
// CHECK: [[W:%[0-9]+]] = stablehlo.convert %arg1 : (tensor<8x3xi8>) -> tensor<8x3xf32>
// CHECK-NEXT: [[P:%[0-9]+]] = stablehlo.dot_general %arg0, [[W]]
// CHECK: [[Y:%[0-9]+]] = stablehlo.multiply [[P]]
// CHECK-NEXT: return [[Y]]
