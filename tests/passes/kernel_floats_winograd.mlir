// RUN: place-float-types, kernel-floats
// SETTINGS: op_types=dot_general,convolution weights.format=float activations.format=float float_type=bfloat16 winograd=true
// KERNELS: avx512_bf16
// The first convolution is computed by tiles of 2x2 pixels; the second one has few channels.
func.func @main(%i: tensor<1x8x8x32xf32>, %f: tensor<3x3x32x40xf32> {jq.weight = "f"},
                %g: tensor<3x3x40x16xf32> {jq.weight = "g"}) -> tensor<1x8x8x16xf32> {
  %0 = stablehlo.convolution(%i, %f) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x8x32xf32>, tensor<3x3x32x40xf32>) -> tensor<1x8x8x40xf32>
  %1 = stablehlo.convolution(%0, %g) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x8x40xf32>, tensor<3x3x40x16xf32>) -> tensor<1x8x8x16xf32>
  return %1 : tensor<1x8x8x16xf32>
}
// CHECK: changed: place-float-types, kernel-floats
// CHECK: call @jq_winograd_1x10x10x32_40x3x3_{{.*}} : (tensor<1x10x320xf32>, tensor<16x{{.*}}xi16>) -> tensor<64x40xf32>
// CHECK: call @jq_convolution_1x10x10x40_16x3x3_{{.*}} : (tensor<1x10x400xf32>, tensor<{{.*}}xi16>) -> tensor<64x16xf32>
// CHECK-NOT: stablehlo.convolution
