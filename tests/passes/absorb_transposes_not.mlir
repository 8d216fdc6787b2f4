// RUN: absorb-transposes
// The free axes would come out in another order.
func.func @main(%x: tensor<4x8xf32>, %w: tensor<2x3x8xf32> {jq.weight = "w"})
    -> tensor<4x3x2xf32> {
  %0 = stablehlo.transpose %w, dims = [2, 1, 0] : (tensor<2x3x8xf32>) -> tensor<8x3x2xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3x2xf32>) -> tensor<4x3x2xf32>
  return %1 : tensor<4x3x2xf32>
}
// CHECK: changed: none
// CHECK: transpose
