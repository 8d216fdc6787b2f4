// RUN: shield-reductions
// As a softmax has them: read along one axis only, twice; and reductions that are not the same.
func.func @main(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %t = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %a = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %d = stablehlo.divide %x, %a : tensor<4x4xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %e = stablehlo.broadcast_in_dim %t, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %y = stablehlo.add %b, %e : tensor<4x4xf32>
  return %d, %y : tensor<4x4xf32>, tensor<4x4xf32>
}
// CHECK: changed: none
