// RUN: order-broadcasts
func.func @main(%x: tensor<2x3xf32>) -> (tensor<3x4x2xf32>, tensor<2x4x3xf32>) {
  %0 = stablehlo.broadcast_in_dim %x, dims = [2, 0] : (tensor<2x3xf32>) -> tensor<3x4x2xf32>
  %1 = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<2x3xf32>) -> tensor<2x4x3xf32>
  return %0, %1 : tensor<3x4x2xf32>, tensor<2x4x3xf32>
}
// CHECK: [[T:%[0-9]+]] = stablehlo.transpose %arg0, dims = [1, 0]
// CHECK-NEXT: broadcast_in_dim [[T]], dims = [0, 2]
// CHECK-NEXT: broadcast_in_dim %arg0, dims = [0, 2]
