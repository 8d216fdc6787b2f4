// RUN: pointwise-products
// SETTINGS: activations.format=mxint8 activations.granularity=per-block
// A stride; padding; a window of three; groups; channels that are not last, or not whole blocks.
func.func @main(%x: tensor<2x6x64xf32>, %y: tensor<2x6x40xf32>, %z: tensor<2x64x6xf32>,
    %w: tensor<1x64x8xf32> {jq.weight = "w"}, %t: tensor<3x64x8xf32> {jq.weight = "t"},
    %g: tensor<1x32x8xf32> {jq.weight = "g"}, %s: tensor<1x40x8xf32> {jq.weight = "s"})
    -> (tensor<2x3x8xf32>, tensor<2x8x8xf32>, tensor<2x4x8xf32>, tensor<2x6x8xf32>,
        tensor<2x8x6xf32>, tensor<2x6x8xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {stride = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x6x64xf32>, tensor<1x64x8xf32>) -> tensor<2x3x8xf32>
  %1 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x6x64xf32>, tensor<1x64x8xf32>) -> tensor<2x8x8xf32>
  %2 = stablehlo.convolution(%x, %t) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x6x64xf32>, tensor<3x64x8xf32>) -> tensor<2x4x8xf32>
  %3 = stablehlo.convolution(%x, %g) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
    : (tensor<2x6x64xf32>, tensor<1x32x8xf32>) -> tensor<2x6x8xf32>
  %4 = stablehlo.convolution(%z, %w) dim_numbers = [b, f, 0]x[0, i, o]->[b, f, 0],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x64x6xf32>, tensor<1x64x8xf32>) -> tensor<2x8x6xf32>
  %5 = stablehlo.convolution(%y, %s) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x6x40xf32>, tensor<1x40x8xf32>) -> tensor<2x6x8xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<2x3x8xf32>, tensor<2x8x8xf32>, tensor<2x4x8xf32>,
    tensor<2x6x8xf32>, tensor<2x8x6xf32>, tensor<2x6x8xf32>
}
// CHECK: changed: none
