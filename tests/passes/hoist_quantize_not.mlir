// RUN: place-activations, hoist-quantize
// SETTINGS: activations.format=int8 activations.mode=static activations.granularity=per-tensor weights.format=float activation_products=int8
// RANGES: head:0=-1,1
// RANGES: head:1=-2,2
// Not where the float result is read, nor to where more would be quantized (a slice).
func.func @main(%x: tensor<8x4xf32>, %y: tensor<64x4xf32>) -> (tensor<4x4xf32>, tensor<4x8xf32>) {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.slice %y [0:8, 0:4] : (tensor<64x4xf32>) -> tensor<8x4xf32>
  %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0] {jq.name = "head"}
       : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %2, %0 : tensor<4x4xf32>, tensor<4x8xf32>
}
// CHECK: changed: place-activations
// CHECK-NOT: hoist-quantize
// CHECK: stablehlo.transpose {{.*}} -> tensor<4x8xf32>
// CHECK: stablehlo.slice {{.*}} -> tensor<8x4xf32>
