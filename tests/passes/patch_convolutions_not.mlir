// RUN: patch-convolutions
// Two dimensions of a window; no window and no stride; groups; integers; a turned filter that is
// no weight; patches of 75 MiB.
func.func @main(%x: tensor<1x8x8x4xf32>, %w: tensor<3x3x4x6xf32>, %p: tensor<1x1x4x6xf32>,
    %d: tensor<1x1x1x4xf32>, %i: tensor<1x8x4xi32>, %j: tensor<3x4x6xi32>, %s: tensor<1x8x4xf32>,
    %t: tensor<6x4x3xf32>, %long: tensor<1x65536x4xf32>, %u: tensor<75x4x1xf32>)
    -> (tensor<1x6x6x6xf32>, tensor<1x8x8x6xf32>, tensor<1x4x4x4xf32>, tensor<1x6x6xi32>,
        tensor<1x6x6xf32>, tensor<1x65462x1xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x4xf32>, tensor<3x3x4x6xf32>) -> tensor<1x6x6x6xf32>
  %1 = stablehlo.convolution(%x, %p) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x4xf32>, tensor<1x1x4x6xf32>) -> tensor<1x8x8x6xf32>
  %2 = stablehlo.convolution(%x, %d) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 4 : i64}
    : (tensor<1x8x8x4xf32>, tensor<1x1x1x4xf32>) -> tensor<1x4x4x4xf32>
  %3 = stablehlo.convolution(%i, %j) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x4xi32>, tensor<3x4x6xi32>) -> tensor<1x6x6xi32>
  %4 = stablehlo.convolution(%s, %t) dim_numbers = [b, 0, f]x[o, i, 0]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x4xf32>, tensor<6x4x3xf32>) -> tensor<1x6x6xf32>
  %5 = stablehlo.convolution(%long, %u) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x65536x4xf32>, tensor<75x4x1xf32>) -> tensor<1x65462x1xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<1x6x6x6xf32>, tensor<1x8x8x6xf32>, tensor<1x4x4x4xf32>,
    tensor<1x6x6xi32>, tensor<1x6x6xf32>, tensor<1x65462x1xf32>
}
// CHECK: changed: none
