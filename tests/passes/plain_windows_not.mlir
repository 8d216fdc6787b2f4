// RUN: plain-windows
func.func @main(%x: tensor<1x5x3xi8>, %w: tensor<3x3x4xi8>) -> tensor<1x2x4xi32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {stride = [2], pad = [[1, 1]], rhs_dilate = [2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x3xi8>, tensor<3x3x4xi8>) -> tensor<1x2x4xi32>
  return %0 : tensor<1x2x4xi32>
}
// CHECK: changed: none
