// RUN: kernel-ranges, kernel-quantize
// KERNELS: avx512_vnni
func.func private @q(%x: tensor<4x300xf32>, %s: tensor<1x1xf32>) -> tensor<4x300xi8> {
  %0 = stablehlo.convert %x : (tensor<4x300xf32>) -> tensor<4x300xi8>
  return %0 : tensor<4x300xi8>
}
func.func @main(%x: tensor<4x300xf32>) -> (tensor<4x300xi8>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %zero) applies stablehlo.minimum across dimensions = [0, 1] : (tensor<4x300xf32>, tensor<f32>) -> tensor<f32>
  %b = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [0, 1] : (tensor<4x300xf32>, tensor<f32>) -> tensor<f32>
  %e = stablehlo.subtract %b, %a : tensor<f32>
  %s = stablehlo.reshape %e : (tensor<f32>) -> tensor<1x1xf32>
  %q = stablehlo.composite "jq.quantize" %x, %s {composite_attributes = {block = array<i64: 0, 0>, format = "int8", options = {}, parts = ["scale"], scale_type = "float32", scheme = "symmetric", shape = array<i64: 4, 300>, tensor = "x"}, decomposition = @q} : (tensor<4x300xf32>, tensor<1x1xf32>) -> tensor<4x300xi8>
  return %q, %e : tensor<4x300xi8>, tensor<f32>
}
// Rows of 300 are cut anew: a row of a multiple of 16 has whole vectors.
// CHECK: changed: kernel-ranges, kernel-quantize
// CHECK: [[R:%[0-9]+]]:2 = call @jq_row_ranges_16x75_
// CHECK: [[LOW:%[0-9]+]] = stablehlo.reduce([[R]]#0 {{.*}}stablehlo.minimum
// CHECK: stablehlo.minimum
// CHECK: stablehlo.reduce([[R]]#1 {{.*}}stablehlo.maximum
// CHECK: stablehlo.maximum
// CHECK: call @jq_quantize_rows_16x75_
// CHECK-NOT: jq.quantize"
