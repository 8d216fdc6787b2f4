// RUN: shield-reductions
// One number is the same along all axes: the scale of a batch of one.
func.func @main(%x: tensor<1x4xf32>) -> tensor<4x4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %c) applies stablehlo.maximum across dimensions = [1] : (tensor<1x4xf32>, tensor<f32>) -> tensor<1xf32>
  %a = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<1xf32>) -> tensor<4x4xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<1xf32>) -> tensor<4x4xf32>
  %y = stablehlo.add %a, %b : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}
// CHECK: changed: none
