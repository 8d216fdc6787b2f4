// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-views
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx512_vnni
func.func @main(%x: tensor<2x4x8xf32>, %w: tensor<8x32xf32> {jq.weight = "w"},
                %v: tensor<8x16xf32> {jq.weight = "v"}) -> (tensor<2x4x32xf32>, tensor<2x4x16xf32>) {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
       : (tensor<2x4x8xf32>, tensor<8x32xf32>) -> tensor<2x4x32xf32>
  %2 = stablehlo.dot_general %x, %v, contracting_dims = [2] x [0]
       : (tensor<2x4x8xf32>, tensor<8x16xf32>) -> tensor<2x4x16xf32>
  return %1, %2 : tensor<2x4x32xf32>, tensor<2x4x16xf32>
}
// Both products read the unsigned view: the quantization stores it, behind reshapes.
// CHECK: changed: {{.*}}kernel-views
// CHECK: call @[[QUANTIZE:jq_quantize_rows_8x8_[0-9a-f]+]]
// CHECK-NOT: stablehlo.xor
// CHECK: call @jq_gemm_8x8x32_
// CHECK: func.func private @[[QUANTIZE]]{{.*}}unsigned\22: true
// CHECK-NOT: func.func private @jq_quantize_rows
