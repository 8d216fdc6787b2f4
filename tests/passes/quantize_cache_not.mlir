// RUN: quantize-cache
// SETTINGS: kv_cache.format=float
// Nobody asked for it.
func.func @main(%cache: tensor<16x2x4xf32>, %new: tensor<1x2x4xf32>, %at: tensor<i32>) -> (tensor<16x2x4xf32>, tensor<16x2xf32>) {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dynamic_update_slice %cache, %new, %at, %c, %c : (tensor<16x2x4xf32>, tensor<1x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<16x2x4xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<16x2x4xf32>, tensor<f32>) -> tensor<16x2xf32>
  return %0, %1 : tensor<16x2x4xf32>, tensor<16x2xf32>
}
// CHECK: changed: none
// CHECK: dynamic_update_slice %arg0, %arg1, %arg2
