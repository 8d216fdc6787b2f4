// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-views, kernel-rows
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx512_vnni
func.func @main(%x: tensor<2x40x8xf32>, %w: tensor<8x32xf32> {jq.weight = "w"},
                %v: tensor<32x16xf32> {jq.weight = "v"}) -> tensor<2x40x16xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
       : (tensor<2x40x8xf32>, tensor<8x32xf32>) -> tensor<2x40x32xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [2] x [0]
       : (tensor<2x40x32xf32>, tensor<32x16xf32>) -> tensor<2x40x16xf32>
  return %2 : tensor<2x40x16xf32>
}
// CHECK: changed: {{.*}}kernel-rows
// CHECK: call @jq_quantize_rows_80x8_
// CHECK: %{{[0-9]+}}:3 = call @[[KERNEL:jq_gemm_rows_80x8x32_[0-9a-f]+]]({{.*}} -> (tensor<80x32xi8>, tensor<80xf32>, tensor<80xi32>)
// CHECK-NOT: call @jq_quantize_rows
// CHECK: call @jq_gemm_80x32x16_
// CHECK: func.func private @[[KERNEL]]
// CHECK-NOT: func.func private @jq_gemm_80x8x32
