// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-pairs
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx2
// Too few rows to put their codes in order; and a vector has more columns.
func.func @main(%x: tensor<15x64xf32>, %y: tensor<40x64xf32>, %w: tensor<64x36xf32> {jq.weight = "w"},
                %v: tensor<64x7xf32> {jq.weight = "v"}) -> (tensor<15x36xf32>, tensor<40x7xf32>) {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<15x64xf32>, tensor<64x36xf32>) -> tensor<15x36xf32>
  %2 = stablehlo.dot_general %y, %v, contracting_dims = [1] x [0]
       : (tensor<40x64xf32>, tensor<64x7xf32>) -> tensor<40x7xf32>
  return %1, %2 : tensor<15x36xf32>, tensor<40x7xf32>
}
// CHECK-NOT: kernel-pairs
// CHECK: call @jq_gemm_15x64x36_
// CHECK: call @jq_gemm_40x64x7_
