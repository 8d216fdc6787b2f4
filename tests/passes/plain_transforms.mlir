// RUN: plain-transforms
func.func @main(%x: tensor<3x16x6xf32>) -> tensor<3x16x4xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = RFFT, length = [16, 6]
    : (tensor<3x16x6xf32>) -> tensor<3x16x4xcomplex<f32>>
  return %0 : tensor<3x16x4xcomplex<f32>>
}
// CHECK: [[P:%[0-9]+]] = stablehlo.dot_general %arg0, {{.*}} (tensor<3x16x6xf32>, tensor<6x8xf32>)
// CHECK: [[Z:%[0-9]+]] = stablehlo.complex
// CHECK: [[T:%[0-9]+]] = stablehlo.transpose [[Z]], dims = [0, 2, 1]
// CHECK: stablehlo.fft [[T]], type =  FFT, length = [16]
// CHECK: stablehlo.transpose {{.*}}, dims = [0, 2, 1]
