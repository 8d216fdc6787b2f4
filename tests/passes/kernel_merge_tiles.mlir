// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-views, kernel-merge
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: amx_int8
// On matrix tiles, whose weights lie otherwise.
func.func @main(%x: tensor<2x4x64xf32>, %w: tensor<64x32xf32> {jq.weight = "w"},
                %v: tensor<64x16xf32> {jq.weight = "v"}) -> (tensor<2x4x32xf32>, tensor<2x4x16xf32>) {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
       : (tensor<2x4x64xf32>, tensor<64x32xf32>) -> tensor<2x4x32xf32>
  %2 = stablehlo.dot_general %x, %v, contracting_dims = [2] x [0]
       : (tensor<2x4x64xf32>, tensor<64x16xf32>) -> tensor<2x4x16xf32>
  %3 = stablehlo.sign %1 : tensor<2x4x32xf32>
  %4 = stablehlo.sign %2 : tensor<2x4x16xf32>
  return %3, %4 : tensor<2x4x32xf32>, tensor<2x4x16xf32>
}
// CHECK: changed: {{.*}}kernel-merge
// CHECK: jq.decisions = {v = {kernel = "[[NAME:gemm_8x64x48_[0-9a-f]+]]", merged = ["w"]}, w = {kernel = "[[NAME]]", merged = ["v"]}}
// CHECK: %[[ALL:[0-9]+]] = call @[[GEMM:jq_gemm_8x64x48_[0-9a-f]+]]({{.*}} -> tensor<8x48xf32>
// CHECK-DAG: stablehlo.slice %[[ALL]] [0:8, 0:32]
// CHECK-DAG: stablehlo.slice %[[ALL]] [0:8, 32:48]
// CHECK-NOT: call @jq_gemm
// CHECK: func.func private @[[GEMM]]
// CHECK-NOT: func.func private @jq_gemm
