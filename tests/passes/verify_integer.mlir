// RUN: verify-integer
// Floats in front of the first quantize and behind the last dequantize are the user's own.
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %y = stablehlo.tanh %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
// CHECK: changed: none
