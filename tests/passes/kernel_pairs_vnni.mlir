// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-views, kernel-pairs
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx512_vnni
// The processor multiplies bytes and sums them in 32 bits.
func.func @main(%x: tensor<40x64xf32>, %w: tensor<64x36xf32> {jq.weight = "w"}) -> tensor<40x36xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<40x64xf32>, tensor<64x36xf32>) -> tensor<40x36xf32>
  return %1 : tensor<40x36xf32>
}
// CHECK-NOT: kernel-pairs
// CHECK: call @jq_gemm_40x64x36_
