// RUN: shield-filters
func.func @main(%x: tensor<1x8x8x4xf32>, %w: tensor<3x3x1x4xi8>, %s: tensor<3x3x1x4xf32>) -> tensor<1x6x6x4xf32> {
  %0 = stablehlo.convert %w : (tensor<3x3x1x4xi8>) -> tensor<3x3x1x4xf32>
  %1 = stablehlo.multiply %0, %s : tensor<3x3x1x4xf32>
  %2 = stablehlo.convolution(%x, %1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 4 : i64} : (tensor<1x8x8x4xf32>, tensor<3x3x1x4xf32>) -> tensor<1x6x6x4xf32>
  return %2 : tensor<1x6x6x4xf32>
}
// CHECK: changed: shield-filters
// CHECK: %[[W:.*]] = stablehlo.multiply
// CHECK: %[[B:.*]] = stablehlo.optimization_barrier %[[W]]
// CHECK: convolution(%arg0, %[[B]])
