// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-views, kernel-hidden-rows
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx512_vnni
func.func @main(%x: tensor<2x40x8xf32>, %mask: tensor<2x40xf32>,
                %w: tensor<8x32xf32> {jq.weight = "w"}) -> tensor<2x40x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
       : (tensor<2x40x8xf32>, tensor<8x32xf32>) -> tensor<2x40x32xf32>
  %1 = stablehlo.abs %mask : tensor<2x40xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<2x40xf32>) -> tensor<2x40x32xf32>
  %3 = stablehlo.multiply %0, %2 : tensor<2x40x32xf32>
  return %3 : tensor<2x40x32xf32>
}
// The count is found in front of the first kernel, with the mask that it needs.
// CHECK: changed: {{.*}}kernel-hidden-rows
// CHECK: %[[MASK:[0-9]+]] = stablehlo.abs
// CHECK: stablehlo.compare NE, %[[MASK]], %{{.*}} : (tensor<2x40xf32>, tensor<2x40xf32>) -> tensor<2x40xi1>
// CHECK: stablehlo.reduce({{.*}}maximum across dimensions = [1] : (tensor<2x40xi32>, tensor<i32>) -> tensor<2xi32>
// CHECK: %[[COUNT:[0-9]+]] = stablehlo.reshape {{.*}} -> tensor<2xi32>
// CHECK: call @[[QUANTIZE:jq_quantize_rows_80x8_[0-9a-f]+]](%{{[0-9]+}}, %[[COUNT]])
// CHECK: call @[[GEMM:jq_gemm_80x8x32_[0-9a-f]+]]({{.*}}, %[[COUNT]])
// CHECK: stablehlo.multiply
// CHECK-DAG: @[[QUANTIZE]]({{.*}}fill\22: false, \22kind\22: \22sequences\22, \22length\22: 40
// CHECK-DAG: @[[GEMM]]({{.*}}fill\22: true, \22kind\22: \22sequences\22, \22length\22: 40
