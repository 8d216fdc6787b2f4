// RUN: place-weights, sink-dequantize
// SETTINGS: weights.format=int8 activations.format=float
func.func @main(%x: tensor<4x8xf32>, %w: tensor<3x8xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<3x8xf32>) -> tensor<8x3xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// CHECK: changed: place-weights, sink-dequantize
// CHECK: [[C:%[0-9]+]] = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<3x8xi8>)
// CHECK-NEXT: [[S:%[0-9]+]] = stablehlo.transpose %arg2, dims = [1, 0] : (tensor<3x1xf32>)
// CHECK-NEXT: [[D:%[0-9]+]] = stablehlo.composite "jq.dequantize" [[C]], [[S]]
// CHECK-SAME: block = array<i64: 0, 1>
// CHECK-NEXT: dot_general %arg0, [[D]]
