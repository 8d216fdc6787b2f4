// RUN: sum-products
func.func @main(%q: tensor<4x3x32xf32>, %keys: tensor<64x4x32xf32>, %p: tensor<4x1x64xf32>)
    -> (tensor<4x3x64xf32>, tensor<4x32x1xf32>) {
  %0 = stablehlo.dot_general %q, %keys, batching_dims = [0] x [1], contracting_dims = [2] x [2]
    : (tensor<4x3x32xf32>, tensor<64x4x32xf32>) -> tensor<4x3x64xf32>
  %1 = stablehlo.dot_general %keys, %p, batching_dims = [1] x [0], contracting_dims = [0] x [2]
    : (tensor<64x4x32xf32>, tensor<4x1x64xf32>) -> tensor<4x32x1xf32>
  return %0, %1 : tensor<4x3x64xf32>, tensor<4x32x1xf32>
}
// CHECK-NOT: dot_general
// CHECK: stablehlo.broadcast_in_dim %arg0, dims = [1, 2, 3]
// CHECK: stablehlo.broadcast_in_dim %arg1, dims = [0, 1, 3]
// CHECK: stablehlo.reduce({{.*}} across dimensions = [3]
// CHECK: stablehlo.transpose {{%[0-9]+}}, dims = [1, 2, 0]
// CHECK: stablehlo.reduce({{.*}} across dimensions = [0]
// CHECK-NOT: dot_general
