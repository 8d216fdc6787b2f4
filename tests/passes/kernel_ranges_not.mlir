// RUN: kernel-ranges
// KERNELS: avx512_vnni
func.func @main(%x: tensor<4x300xf32>) -> (tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.minimum across dimensions = [0, 1] : (tensor<4x300xf32>, tensor<f32>) -> tensor<f32>
  %b = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<4x300xf32>, tensor<f32>) -> tensor<f32>
  return %a, %b : tensor<f32>, tensor<f32>
}
// Nothing is quantized by it.
// CHECK: changed: none
