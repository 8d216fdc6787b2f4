// RUN: place-activations, hoist-quantize
// SETTINGS: activations.format=int8 activations.mode=static activations.granularity=per-tensor weights.format=float activation_products=int8
// RANGES: head:0=-1,1
// RANGES: head:1=-2,2
// Through a transpose and pooling, to the value that both have read.
func.func @main(%x: tensor<4x8x8xf32>, %y: tensor<4x16xf32>) -> tensor<4x4xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.transpose %x, dims = [0, 2, 1] : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32>
  %1 = "stablehlo.reduce_window"(%0, %low) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2, 2>, window_strides = array<i64: 1, 2, 2>}
     : (tensor<4x8x8xf32>, tensor<f32>) -> tensor<4x4x4xf32>
  %2 = stablehlo.reshape %1 : (tensor<4x4x4xf32>) -> tensor<4x16xf32>
  %3 = stablehlo.dot_general %2, %y, contracting_dims = [1] x [1] {jq.name = "head"}
       : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}
// CHECK: changed: place-activations, hoist-quantize
// CHECK: dense<-128> : tensor<i8>
// CHECK: %[[Q:.*]] = stablehlo.composite "jq.quantize" %arg0
// CHECK-SAME: -> tensor<4x8x8xi8>
// CHECK: stablehlo.transpose %[[Q]], {{.*}} : (tensor<4x8x8xi8>)
// CHECK: stablehlo.reduce_window
// CHECK: stablehlo.maximum %{{.*}}, %{{.*}} : tensor<i8>
// CHECK: stablehlo.reshape %{{.*}} : (tensor<4x4x4xi8>) -> tensor<4x16xi8>
// CHECK: stablehlo.composite "jq.dequantize"
