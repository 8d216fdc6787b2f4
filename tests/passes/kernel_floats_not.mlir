// RUN: place-float-types, kernel-floats
// SETTINGS: op_types=dot_general,convolution weights.format=float activations.format=float
// RULE: two: bfloat16
// RULE: split: bfloat16
// KERNELS: avx512_vnni
// Two activations, groups of the batch, and what stays float32: a product and a filter for each channel.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8x3xf32>, %i: tensor<1x8x8x16xf32>, %j: tensor<2x8x8x16xf32>,
                %w: tensor<8x3xf32> {jq.weight = "w"}, %f: tensor<3x3x1x16xf32> {jq.weight = "deep"},
                %g: tensor<3x3x16x4xf32> {jq.weight = "split"})
    -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<1x6x6x16xf32>, tensor<1x6x6x4xf32>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] {jq.name = "two"}
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.convolution(%i, %f) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 16 : i64}
       : (tensor<1x8x8x16xf32>, tensor<3x3x1x16xf32>) -> tensor<1x6x6x16xf32>
  %3 = stablehlo.convolution(%j, %g) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 2 : i64, feature_group_count = 1 : i64}
       : (tensor<2x8x8x16xf32>, tensor<3x3x16x4xf32>) -> tensor<1x6x6x4xf32>
  return %0, %1, %2, %3 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<1x6x6x16xf32>, tensor<1x6x6x4xf32>
}
// CHECK: jq.decisions = {deep = {kernel = "depthwise_1x8x8x16_3x3_{{.*}}", types = ["f32", "f32", "f32"]}, split = {no_kernel = "no kernel for groups of the batch"}, two = {no_kernel = "no operand is a constant weight"}, w = {kernel = "gemm_4x8x3_{{.*}}", types = ["f32", "f32", "f32"]}}
// CHECK: stablehlo.dot_general {{.*}} (tensor<4x8xbf16>, tensor<8x3xbf16>) -> tensor<4x3xf32>
// CHECK: call @jq_gemm_4x8x3_{{.*}} (tensor<4x8xf32>, tensor<{{.*}}xf32>) -> tensor<4x3xf32>
// CHECK: call @jq_depthwise_1x8x8x16_3x3_{{.*}} (tensor<1x8x8x16xf32>, tensor<1x9x16xf32>) -> tensor<36x16xf32>
// CHECK-NOT: call @
// CHECK: stablehlo.convolution
