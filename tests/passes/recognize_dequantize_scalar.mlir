// RUN: recognize-dequantize
// A scalar has a scale and a zero point that are scalars.
func.func @main(%c: tensor<i8>) -> (tensor<f32>, tensor<f32>) {
  %s = stablehlo.constant dense<16.0> : tensor<f32>
  %z = stablehlo.constant dense<3.0> : tensor<f32>
  %0 = stablehlo.convert %c : (tensor<i8>) -> tensor<f32>
  %1 = stablehlo.multiply %0, %s : tensor<f32>
  %2 = stablehlo.subtract %0, %z : tensor<f32>
  %3 = stablehlo.multiply %2, %s : tensor<f32>
  return %1, %3 : tensor<f32>, tensor<f32>
}
// CHECK: changed: recognize-dequantize
// CHECK: stablehlo.composite "jq.dequantize" %arg0
// CHECK-SAME: (tensor<i8>, tensor<f32>) -> tensor<f32>
// CHECK: stablehlo.composite "jq.dequantize" %arg0
// CHECK-SAME: (tensor<i8>, tensor<f32>, tensor<i32>) -> tensor<f32>
