// RUN: place-activations, hoist-quantize
// SETTINGS: placement=late activations.format=int8 activations.mode=static activations.granularity=per-tensor weights.format=float activation_products=int8
// RANGES: head:0=-1,1
// RANGES: head:1=-2,2
func.func @main(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.reshape %x : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.dot_general %0, %y, contracting_dims = [1] x [0] {jq.name = "head"}
       : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
// CHECK: changed: place-activations
// CHECK-NOT: hoist-quantize
// CHECK: stablehlo.reshape {{.*}} -> tensor<4x8xf32>
