// RUN: quantize-cache
// SETTINGS: kv_cache.format=int8
// What comes in is quantized and both parts are updated; whoever reads the cache dequantizes.
func.func @main(%cache: tensor<16x2x4xf32>, %new: tensor<1x2x4xf32>, %at: tensor<i32>) -> (tensor<16x2x4xf32>, tensor<16x2xf32>) {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dynamic_update_slice %cache, %new, %at, %c, %c : (tensor<16x2x4xf32>, tensor<1x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<16x2x4xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<16x2x4xf32>, tensor<f32>) -> tensor<16x2xf32>
  return %0, %1 : tensor<16x2x4xf32>, tensor<16x2xf32>
}
// CHECK: changed: quantize-cache
// CHECK: @main(%arg0: tensor<16x2x4xi8>, %arg1: tensor<16x2x1xf32>, %arg2: tensor<1x2x4xf32>, %arg3: tensor<i32>) -> (tensor<16x2x4xi8>, tensor<16x2x1xf32>, tensor<16x2xf32>)
// CHECK: %[[P:.*]]:2 = stablehlo.composite "jq.quantize_dynamic" %arg2
// CHECK: %[[C:.*]] = stablehlo.dynamic_update_slice %arg0, %[[P]]#0, %arg3
// CHECK: %[[S:.*]] = stablehlo.dynamic_update_slice %arg1, %[[P]]#1, %arg3
// CHECK: %[[D:.*]] = stablehlo.composite "jq.dequantize" %[[C]], %[[S]]
// CHECK: %[[R:.*]] = stablehlo.reduce(%[[D]]
// CHECK: return %[[C]], %[[S]], %[[R]]
