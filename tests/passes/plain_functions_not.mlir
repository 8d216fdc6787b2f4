// RUN: plain-functions
func.func @main(%x: tensor<4xf32>, %d: tensor<4xf64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf64>) {
  %e = stablehlo.exponential %x : tensor<4xf32>
  %l = stablehlo.logistic %x : tensor<4xf32>
  %s = stablehlo.sine %d : tensor<4xf64>
  return %e, %l, %s : tensor<4xf32>, tensor<4xf32>, tensor<4xf64>
}
// CHECK: changed: none
