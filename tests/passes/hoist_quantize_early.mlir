// RUN: place-activations, hoist-quantize
// SETTINGS: placement=early activations.format=int8 activations.mode=static activations.granularity=per-tensor weights.format=float activation_products=int8
// RANGES: head:0=-1,1
// RANGES: head:1=-2,2
// As far as it goes: though a slice reads less, and constants become codes. A clamp is left in its region.
func.func @main(%x: tensor<4x64xf32>, %y: tensor<8x4xf32>, %p: tensor<4x8xi1>) -> tensor<4x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<4x8xf32>
  %half = stablehlo.constant dense<0.5> : tensor<4x8xf32>
  %0 = stablehlo.slice %x [0:4, 0:8] : (tensor<4x64xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.select %p, %0, %half : tensor<4x8xi1>, tensor<4x8xf32>
  %2 = stablehlo.maximum %y, %y : tensor<8x4xf32>
  %3 = stablehlo.constant dense<0.0> : tensor<8x4xf32>
  %4 = stablehlo.maximum %2, %3 : tensor<8x4xf32>
  %5 = stablehlo.dot_general %1, %4, contracting_dims = [1] x [0] {jq.name = "head"}
       : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %5 : tensor<4x4xf32>
}
// CHECK: changed: place-activations, hoist-quantize
// CHECK-DAG: stablehlo.composite "jq.quantize" %arg0
// CHECK-DAG: stablehlo.slice {{.*}} : (tensor<4x64xi8>) -> tensor<4x8xi8>
// CHECK-DAG: dense<63> : tensor<i8>
// CHECK-DAG: stablehlo.select {{.*}} : tensor<4x8xi1>, tensor<4x8xi8>
// CHECK-DAG: stablehlo.maximum {{.*}} : tensor<8x4xf32>
