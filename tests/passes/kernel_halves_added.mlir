// RUN: place-float-types, kernel-floats, kernel-halves
// SETTINGS: op_types=dot_general,convolution weights.format=float activations.format=float float_type=bfloat16
// KERNELS: avx512_bf16
// What a convolution reads rounded, the sum behind it reads rounded, too: both read the same bits.
func.func @main(%x: tensor<1x4x5x32xf32>, %a: tensor<3x3x32x32xf32> {jq.weight = "a"}, %b: tensor<3x3x32x32xf32> {jq.weight = "b"})
    -> tensor<1x4x5x32xf32> {
  %0 = stablehlo.convolution(%x, %a) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, jq.name = "a"}
       : (tensor<1x4x5x32xf32>, tensor<3x3x32x32xf32>) -> tensor<1x4x5x32xf32>
  %1 = stablehlo.convolution(%0, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, jq.name = "b"}
       : (tensor<1x4x5x32xf32>, tensor<3x3x32x32xf32>) -> tensor<1x4x5x32xf32>
  %2 = stablehlo.add %1, %0 : tensor<1x4x5x32xf32>
  return %2 : tensor<1x4x5x32xf32>
}
// CHECK: changed: place-float-types, kernel-floats, kernel-halves
// CHECK: %[[BITS:.*]] = call @jq_convolution_1x6x7x32_32x3x3_{{.*}} -> tensor<20x32xi16>
// CHECK-NOT: stablehlo.convert
// CHECK: call @jq_convolution_1x6x7x32_32x3x3_{{.*}} : (tensor<1x6x224xi16>, tensor<{{.*}}xi16>, tensor<20x32xi16>) -> tensor<20x32xf32>
// CHECK: return
