// RUN: mark-residuals
// SETTINGS: weights.format=int8 activations.format=int8 activations.mode=static
// What is added comes from no convolution, or the sum is that of products.
func.func @main(%x: tensor<1x5x6x4xf32>, %m: tensor<6x6xf32>,
                %w: tensor<1x1x4x4xf32> {jq.weight = "w"}, %v: tensor<6x6xf32> {jq.weight = "v"})
    -> (tensor<1x5x6x4xf32>, tensor<6x6xf32>) {
  %a = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x6x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x5x6x4xf32>
  %t = stablehlo.tanh %x : tensor<1x5x6x4xf32>
  %s = stablehlo.add %t, %a : tensor<1x5x6x4xf32>
  %p = stablehlo.dot_general %m, %v, contracting_dims = [1] x [0]
    : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  %q = stablehlo.add %p, %m : tensor<6x6xf32>
  return %s, %q : tensor<1x5x6x4xf32>, tensor<6x6xf32>
}
// CHECK: changed: none
