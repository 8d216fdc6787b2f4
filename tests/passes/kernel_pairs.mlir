// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-pairs
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx2
func.func @main(%x: tensor<40x64xf32>, %w: tensor<64x36xf32> {jq.weight = "w"}) -> tensor<40x36xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<40x64xf32>, tensor<64x36xf32>) -> tensor<40x36xf32>
  return %1 : tensor<40x36xf32>
}
// CHECK: changed: {{.*}}kernel-pairs
// CHECK: call @[[KERNEL:jq_pair_gemm_40x64x36_[0-9a-f]+]](
// CHECK-NOT: @jq_gemm_40x64x36
// CHECK: func.func private @[[KERNEL]](tensor<40x64xi8>, tensor<5x1x{{[0-9]+}}x64xi8>, tensor<5x1x2x64xi8>, tensor<5x1x{{[0-9]+}}xi32>, tensor<40xi32>
