// RUN: kernel-floats
// KERNELS: avx2
// Two products with a weight, which is packed and stored once.
func.func @main(%x: tensor<4x32xf32>, %w: tensor<32x16xf32> {jq.weight = "w"}) -> tensor<4x16xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {jq.name = "w"} : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %1 = stablehlo.cosine %x : tensor<4x32xf32>
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0] {jq.name = "w#2"} : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %3 = stablehlo.tanh %0 : tensor<4x16xf32>
  %4 = stablehlo.multiply %3, %2 : tensor<4x16xf32>
  return %4 : tensor<4x16xf32>
}
// CHECK: changed: kernel-floats
// CHECK-NEXT: weight w:packed: float32
// CHECK-NEXT: module
// CHECK: call @jq_gemm_4x32x16_{{.*}}(%arg0, %arg1)
// CHECK: call @jq_gemm_4x32x16_{{.*}}({{.*}}, %arg1)
