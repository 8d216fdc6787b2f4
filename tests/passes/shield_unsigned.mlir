// RUN: shield-unsigned
func.func @main(%x: tensor<4x8xui8>, %w: tensor<8x3xi32>) -> tensor<4x3xi32> {
  %a = stablehlo.convert %x : (tensor<4x8xui8>) -> tensor<4x8xi32>
  %y = stablehlo.dot_general %a, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xi32>, tensor<8x3xi32>) -> tensor<4x3xi32>
  return %y : tensor<4x3xi32>
}
// CHECK: [[A:%[0-9]+]] = stablehlo.convert %arg0
// CHECK-NEXT: [[B:%[0-9]+]] = stablehlo.optimization_barrier [[A]]
// CHECK-NEXT: [[C:%[0-9]+]] = stablehlo.optimization_barrier %arg1
// CHECK-NEXT: dot_general [[B]], [[C]]
