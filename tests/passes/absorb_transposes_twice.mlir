// RUN: absorb-transposes
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<8x3xf32>) -> tensor<3x8xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x8xf32>) -> tensor<8x3xf32>
  %2 = stablehlo.dot_general %x, %1, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %2 : tensor<4x3xf32>
}
// CHECK: changed: absorb-transposes
// CHECK-NOT: transpose
// CHECK: dot_general %arg0, %arg1, contracting_dims = [1] x [0]
