// RUN: quantize-cache
// SETTINGS: kv_cache.format=int8
// ERROR: no input is updated in place and returned
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.negate %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
