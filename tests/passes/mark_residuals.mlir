// RUN: mark-residuals
// SETTINGS: weights.format=int8 activations.format=int8 activations.mode=static
// The shortcut of a block is an edge, for the sum and for the convolution that reads it too.
func.func @main(%x: tensor<1x5x6x4xf32>, %w: tensor<1x1x4x4xf32> {jq.weight = "w"})
    -> tensor<1x5x6x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<1x5x6x4xf32>
  %a = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x6x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x5x6x4xf32>
  %r = stablehlo.maximum %a, %zero : tensor<1x5x6x4xf32>
  %b = stablehlo.convolution(%r, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x6x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x5x6x4xf32>
  %s = stablehlo.add %r, %b : tensor<1x5x6x4xf32>
  return %s : tensor<1x5x6x4xf32>
}
// CHECK: [[R:%[0-9]+]] = stablehlo.maximum
// CHECK-NEXT: [[E:%[0-9]+]] = stablehlo.composite "jq.edge" [[R]]
// CHECK-NEXT: [[B:%[0-9]+]] = stablehlo.convolution([[E]],
// CHECK: stablehlo.add [[E]], [[B]]
