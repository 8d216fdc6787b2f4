// RUN: plain-unsigned
// Signed integers, floats and bools stay as they are.
func.func @main(%x: tensor<4xi8>, %y: tensor<4xi8>) -> (tensor<4xi8>, tensor<4xf32>, tensor<4xi1>) {
  %m = stablehlo.maximum %x, %y : tensor<4xi8>
  %f = stablehlo.convert %m : (tensor<4xi8>) -> tensor<4xf32>
  %c = stablehlo.compare LT, %x, %y : (tensor<4xi8>, tensor<4xi8>) -> tensor<4xi1>
  return %m, %f, %c : tensor<4xi8>, tensor<4xf32>, tensor<4xi1>
}
// CHECK: changed: none
