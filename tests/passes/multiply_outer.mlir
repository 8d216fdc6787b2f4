// RUN: multiply-outer
func.func @main(%x: tensor<3x5x1xi8>, %w: tensor<1x8xi8>) -> tensor<3x5x8xi32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
       : (tensor<3x5x1xi8>, tensor<1x8xi8>) -> tensor<3x5x8xi32>
  return %y : tensor<3x5x8xi32>
}
// CHECK-NOT: dot_general
// CHECK: [[X:%[0-9]+]] = stablehlo.convert %arg0 : (tensor<3x5x1xi8>) -> tensor<3x5x1xi32>
// CHECK: broadcast_in_dim {{%[0-9]+}}, dims = [0, 1]
// CHECK: broadcast_in_dim {{%[0-9]+}}, dims = [2]
// CHECK: stablehlo.multiply {{.*}} : tensor<3x5x8xi32>
// CHECK-NOT: dot_general
