// RUN: place-float-types, kernel-floats, kernel-halves
// SETTINGS: op_types=dot_general,convolution weights.format=float activations.format=float float_type=bfloat16
// KERNELS: avx512_bf16
// What the second kernel reads is rounded by the first; a filter for each channel likewise.
func.func @main(%x: tensor<20x64xf32>, %w: tensor<64x24xf32> {jq.weight = "w"},
                %f: tensor<3x3x24x32xf32> {jq.weight = "f"}, %d: tensor<3x3x1x32xf32> {jq.weight = "d"})
    -> tensor<1x4x5x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {jq.name = "w"}
       : (tensor<20x64xf32>, tensor<64x24xf32>) -> tensor<20x24xf32>
  %1 = stablehlo.reshape %0 : (tensor<20x24xf32>) -> tensor<1x4x5x24xf32>
  %2 = stablehlo.convolution(%1, %f) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, jq.name = "f"}
       : (tensor<1x4x5x24xf32>, tensor<3x3x24x32xf32>) -> tensor<1x4x5x32xf32>
  %3 = stablehlo.convolution(%2, %d) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 32 : i64, jq.name = "d"}
       : (tensor<1x4x5x32xf32>, tensor<3x3x1x32xf32>) -> tensor<1x4x5x32xf32>
  return %3 : tensor<1x4x5x32xf32>
}
// CHECK: changed: place-float-types, kernel-floats, kernel-halves
// CHECK: call @jq_gemm_20x64x24_{{.*}} : (tensor<20x64xf32>, tensor<{{.*}}xi16>) -> tensor<20x24xi16>
// CHECK: call @jq_convolution_1x6x7x24_32x3x3_{{.*}} : (tensor<1x6x168xi16>, tensor<{{.*}}xi16>) -> tensor<20x32xi16>
// CHECK: call @jq_depthwise_1x4x5x32_3x3_{{.*}} : (tensor<1x4x5x32xi16>, tensor<{{.*}}xi16>) -> tensor<20x32xf32>
// CHECK: return
// CHECK: \22element\22: \22bf16_bits\22
