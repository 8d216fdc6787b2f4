// RUN: fold-ones
// A mask of heads on either side, one that adds an axis, and products that stay.
func.func @main(%x: tensor<2x5x4x8xf32>, %y: tensor<4xf32>) -> (tensor<4x2x5x8xf32>,
    tensor<4x2x5x8xf32>, tensor<4x3xf32>, tensor<4xf32>, tensor<f32>) {
  %c = stablehlo.constant dense<1.0> : tensor<f32>
  %ones = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %wide = stablehlo.constant dense<1.0> : tensor<3xf32>
  %half = stablehlo.constant dense<[1.0, 1.0, 1.0, 0.5]> : tensor<4xf32>
  %0 = stablehlo.dot_general %x, %ones, batching_dims = [2] x [0], contracting_dims = [] x []
    : (tensor<2x5x4x8xf32>, tensor<4xf32>) -> tensor<4x2x5x8xf32>
  %1 = stablehlo.dot_general %ones, %x, batching_dims = [0] x [2], contracting_dims = [] x []
    : (tensor<4xf32>, tensor<2x5x4x8xf32>) -> tensor<4x2x5x8xf32>
  %2 = stablehlo.dot_general %y, %wide, contracting_dims = [] x []
    : (tensor<4xf32>, tensor<3xf32>) -> tensor<4x3xf32>
  %3 = stablehlo.dot_general %y, %half, batching_dims = [0] x [0], contracting_dims = [] x []
    : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = stablehlo.dot_general %y, %ones, contracting_dims = [0] x [0]
    : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  return %0, %1, %2, %3, %4 : tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<4x3xf32>,
    tensor<4xf32>, tensor<f32>
}
// CHECK: changed: fold-ones
// CHECK-DAG: [[A:%[0-9]+]] = stablehlo.transpose %arg0, dims = [2, 0, 1, 3]
// CHECK-DAG: [[C:%[0-9]+]] = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<4xf32>) -> tensor<4x3xf32>
// CHECK-DAG: stablehlo.dot_general %arg1, %{{.*}}, batching_dims = [0] x [0]
// CHECK-DAG: stablehlo.dot_general %arg1, %{{.*}}, contracting_dims = [0] x [0]
