// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-views
// SETTINGS: weights.format=int8 activations.format=int8
// RULE: plain: weights.scheme=asymmetric
// KERNELS: avx512_vnni
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x32xf32> {jq.weight = "w"},
                %v: tensor<8x16xf32> {jq.weight = "plain"}) -> (tensor<4x32xf32>, tensor<4x16xf32>) {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x32xf32>) -> tensor<4x32xf32>
  %2 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %1, %2 : tensor<4x32xf32>, tensor<4x16xf32>
}
// A product with zero points of weights takes signed codes: they are flipped for the other one alone.
// CHECK: changed: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize
// CHECK-NOT: kernel-views
// CHECK: [[Q:%[0-9]+]]:3 = call @jq_quantize_rows
// CHECK: [[U:%[0-9]+]] = stablehlo.xor
// CHECK: call @jq_gemm_4x8x32_{{[0-9a-f]+}}([[U]]
// CHECK: call @jq_gemm_4x8x16_{{[0-9a-f]+}}([[Q]]#0
