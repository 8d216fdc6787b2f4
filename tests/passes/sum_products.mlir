// RUN: sum-products
func.func @main(%q: tensor<4x1x32xf32>, %keys: tensor<64x4x32xf32>, %p: tensor<4x1x64xf32>)
    -> (tensor<4x1x64xf32>, tensor<4x32x1xf32>) {
  %0 = stablehlo.dot_general %q, %keys, batching_dims = [0] x [1], contracting_dims = [2] x [2]
    : (tensor<4x1x32xf32>, tensor<64x4x32xf32>) -> tensor<4x1x64xf32>
  %1 = stablehlo.dot_general %keys, %p, batching_dims = [1] x [0], contracting_dims = [0] x [2]
    : (tensor<64x4x32xf32>, tensor<4x1x64xf32>) -> tensor<4x32x1xf32>
  return %0, %1 : tensor<4x1x64xf32>, tensor<4x32x1xf32>
}
// CHECK-NOT: dot_general
// CHECK: [[Q:%[0-9]+]] = stablehlo.broadcast_in_dim {{%[0-9]+}}, dims = [1, 2]
// CHECK-NEXT: [[A:%[0-9]+]] = stablehlo.multiply %arg1, [[Q]]
// CHECK: stablehlo.reduce([[A]] {{.*}} across dimensions = [2]
// CHECK: stablehlo.transpose {{%[0-9]+}}, dims = [1, 0]
// CHECK: [[P:%[0-9]+]] = stablehlo.broadcast_in_dim {{%[0-9]+}}, dims = [0, 1]
// CHECK-NEXT: [[B:%[0-9]+]] = stablehlo.multiply %arg1, [[P]]
// CHECK: stablehlo.reduce([[B]] {{.*}} across dimensions = [0]
