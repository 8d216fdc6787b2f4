// RUN: place-weights, place-activations, lower-contractions, kernel-gemm
// SETTINGS: weights.format=int4 activations.format=int8
// KERNELS: avx512_vnni
func.func @main(%x: tensor<4x64xf32>, %w: tensor<64x8xf32> {jq.weight = "w"}) -> tensor<4x8xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x64xf32>, tensor<64x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
// CHECK-NOT: changed: {{.*}}kernel-gemm
// CHECK: jq.decisions = {w = {no_kernel = "no kernel for int8 x int4"}}
// CHECK: stablehlo.composite "jq.contract"
