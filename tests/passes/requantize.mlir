// RUN: place-edges, place-weights, place-activations, sink-dequantize, requantize
// SETTINGS: weights.format=int8 activations.format=int8 activations.mode=static
// RANGES: w:0=-1,4.1
// RANGES: v:0=-1,4.1
// A bias and a clamp between two convolutions; the second one's result stays float.
func.func @main(%x: tensor<1x5x6x4xf32>, %w: tensor<1x1x4x4xf32> {jq.weight = "w"},
                %v: tensor<1x1x4x3xf32> {jq.weight = "v"}) -> tensor<1x5x6x3xf32> {
  %bias = stablehlo.constant dense<[0.5, -1.0, 0.0, 2.0]> : tensor<4xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<1x5x6x4xf32>
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x6x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x5x6x4xf32>
  %b = stablehlo.broadcast_in_dim %bias, dims = [3] : (tensor<4xf32>) -> tensor<1x5x6x4xf32>
  %a = stablehlo.add %y, %b : tensor<1x5x6x4xf32>
  %r = stablehlo.maximum %a, %zero : tensor<1x5x6x4xf32>
  %z = stablehlo.convolution(%r, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x6x4xf32>, tensor<1x1x4x3xf32>) -> tensor<1x5x6x3xf32>
  return %z : tensor<1x5x6x3xf32>
}
// CHECK: changed: {{.*}}requantize
// CHECK: [[X:%[0-9]+]] = stablehlo.composite "jq.quantize" %arg0
// CHECK: [[Q:%[0-9]+]] = stablehlo.composite "jq.requantize" [[X]]
// CHECK-SAME: high = 127 : i64, low = -78 : i64
// CHECK-SAME: -> tensor<1x5x6x4xi8>
// CHECK-NOT: stablehlo.maximum
// CHECK: stablehlo.composite "jq.dequantize" [[Q]]
// CHECK: stablehlo.convolution
