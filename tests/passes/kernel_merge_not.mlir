// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-views, kernel-merge
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx512_vnni
func.func @main(%x: tensor<2x4x8xf32>, %w: tensor<8x32xf32> {jq.weight = "w"},
                %v: tensor<8x16xf32> {jq.weight = "v"}) -> (tensor<2x4x32xf32>, tensor<2x4x16xf32>) {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
       : (tensor<2x4x8xf32>, tensor<8x32xf32>) -> tensor<2x4x32xf32>
  %2 = stablehlo.dot_general %x, %v, contracting_dims = [2] x [0]
       : (tensor<2x4x8xf32>, tensor<8x16xf32>) -> tensor<2x4x16xf32>
  %3 = stablehlo.sine %1 : tensor<2x4x32xf32>
  return %3, %2 : tensor<2x4x32xf32>, tensor<2x4x16xf32>
}
// A result of the program would be a copy of its columns.
// CHECK-NOT: kernel-merge
// CHECK: call @jq_gemm_8x8x32_
// CHECK: call @jq_gemm_8x8x16_
