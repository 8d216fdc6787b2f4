// RUN: shield-strides
// Windows of two elements meet them all, and so do those that move by one.
func.func @main(%x: tensor<1x9x1xf32>) -> (tensor<1x4x1xf32>, tensor<1x9x1xf32>) {
  %i = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %i) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2, 1>, window_strides = array<i64: 1, 2, 1>}
    : (tensor<1x9x1xf32>, tensor<f32>) -> tensor<1x4x1xf32>
  %k = stablehlo.constant dense<3.0> : tensor<1x1x1xf32>
  %1 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x9x1xf32>, tensor<1x1x1xf32>) -> tensor<1x9x1xf32>
  return %0, %1 : tensor<1x4x1xf32>, tensor<1x9x1xf32>
}
// CHECK: changed: none
