// RUN: plain-transforms
// Powers of two along the last axis.
func.func @main(%x: tensor<3x16xf32>) -> tensor<3x9xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = RFFT, length = [16] : (tensor<3x16xf32>) -> tensor<3x9xcomplex<f32>>
  return %0 : tensor<3x9xcomplex<f32>>
}
// CHECK: changed: none
