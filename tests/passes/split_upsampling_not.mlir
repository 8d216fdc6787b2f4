// RUN: split-upsampling
// Groups; a stride; a dilated window; a weight that is an input; no zeros between elements.
func.func @main(%x: tensor<1x4x4xf32>, %u: tensor<2x4x6xf32>,
    %g: tensor<2x2x6xf32> {jq.weight = "g"}, %w: tensor<2x4x6xf32> {jq.weight = "w"})
    -> (tensor<1x8x6xf32>, tensor<1x4x6xf32>, tensor<1x7x6xf32>, tensor<1x8x6xf32>,
        tensor<1x3x6xf32>) {
  %0 = stablehlo.convolution(%x, %g) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {pad = [[1, 1]], lhs_dilate = [2]}
    {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
    : (tensor<1x4x4xf32>, tensor<2x2x6xf32>) -> tensor<1x8x6xf32>
  %1 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {stride = [2], pad = [[1, 1]], lhs_dilate = [2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x4x4xf32>, tensor<2x4x6xf32>) -> tensor<1x4x6xf32>
  %2 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {pad = [[1, 1]], lhs_dilate = [2], rhs_dilate = [2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x4x4xf32>, tensor<2x4x6xf32>) -> tensor<1x7x6xf32>
  %3 = stablehlo.convolution(%x, %u) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {pad = [[1, 1]], lhs_dilate = [2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x4x4xf32>, tensor<2x4x6xf32>) -> tensor<1x8x6xf32>
  %4 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x4x4xf32>, tensor<2x4x6xf32>) -> tensor<1x3x6xf32>
  return %0, %1, %2, %3, %4 : tensor<1x8x6xf32>, tensor<1x4x6xf32>, tensor<1x7x6xf32>,
    tensor<1x8x6xf32>, tensor<1x3x6xf32>
}
// CHECK: changed: none
