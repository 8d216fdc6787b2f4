// RUN: shield-filters
// Filters that are given or only moved, and decoded ones of one group.
func.func @main(%x: tensor<1x8x8x4xf32>, %w: tensor<3x1x4x3xf32>, %c: tensor<3x3x4x4xi8>) -> (tensor<1x6x6x4xf32>, tensor<1x6x6x4xf32>) {
  %0 = stablehlo.transpose %w, dims = [0, 3, 1, 2] : (tensor<3x1x4x3xf32>) -> tensor<3x3x1x4xf32>
  %1 = stablehlo.convolution(%x, %0) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 4 : i64} : (tensor<1x8x8x4xf32>, tensor<3x3x1x4xf32>) -> tensor<1x6x6x4xf32>
  %2 = stablehlo.convert %c : (tensor<3x3x4x4xi8>) -> tensor<3x3x4x4xf32>
  %3 = stablehlo.convolution(%x, %2) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x4xf32>, tensor<3x3x4x4xf32>) -> tensor<1x6x6x4xf32>
  return %1, %3 : tensor<1x6x6x4xf32>, tensor<1x6x6x4xf32>
}
// CHECK: changed: none
