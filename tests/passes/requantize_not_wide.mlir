// RUN: place-edges, place-weights, place-activations, sink-dequantize, requantize
// SETTINGS: weights.format=int8 activations.format=int8 activations.mode=static
// RULE: w: activations.format=int16, activations.scheme=symmetric
// RANGES: w:0=-1,4.1
// RANGES: v:0=-1,4.1
// Codes of 16 bits are summed in int64: that is no step to codes of 8.
func.func @main(%x: tensor<1x5x6x4xf32>, %w: tensor<1x1x4x4xf32> {jq.weight = "w"},
                %v: tensor<1x1x4x3xf32> {jq.weight = "v"}) -> tensor<1x5x6x3xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x6x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x5x6x4xf32>
  %z = stablehlo.convolution(%y, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x6x4xf32>, tensor<1x1x4x3xf32>) -> tensor<1x5x6x3xf32>
  return %z : tensor<1x5x6x3xf32>
}
// CHECK: module
// CHECK: stablehlo.composite "jq.quantize" {{.*}} -> tensor<1x5x6x4xi16>
// CHECK-NOT: jq.requantize
// CHECK: stablehlo.convolution
// CHECK-NOT: jq.requantize
// CHECK: stablehlo.composite "jq.quantize" {{.*}} -> tensor<1x5x6x4xi8>
