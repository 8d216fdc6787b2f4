// RUN: recognize-dequantize
// Unsigned codes, a scale that the program computes, and a zero point that is no integer.
func.func @main(%x: tensor<4xf32>, %c: tensor<4xi8>, %u: tensor<4xui8> {jq.weight = "u"}) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %s = stablehlo.constant dense<0.5> : tensor<4xf32>
  %0 = stablehlo.convert %u : (tensor<4xui8>) -> tensor<4xf32>
  %1 = stablehlo.multiply %0, %s : tensor<4xf32>
  %2 = stablehlo.convert %c : (tensor<4xi8>) -> tensor<4xf32>
  %3 = stablehlo.multiply %2, %x : tensor<4xf32>
  %4 = stablehlo.subtract %2, %s : tensor<4xf32>
  %5 = stablehlo.multiply %4, %s : tensor<4xf32>
  return %1, %3, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
// CHECK: changed: none
// CHECK-NOT: composite
