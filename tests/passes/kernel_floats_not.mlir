// RUN: place-float-types, kernel-floats
// SETTINGS: op_types=dot_general,convolution weights.format=float activations.format=float
// RULE: two: bfloat16
// RULE: deep: bfloat16
// RULE: split: bfloat16
// KERNELS: avx512_vnni
// Two activations, a filter for each channel, groups of the batch, and what stays float32.
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
// CHECK: jq.decisions = {deep = {no_kernel = "a filter for each channel"}, split = {no_kernel = "no kernel for groups of the batch"}, two = {no_kernel = "no operand is a constant weight"}}
// CHECK-NOT: call @
// CHECK: stablehlo.dot_general {{.*}} (tensor<4x8xbf16>, tensor<8x3xbf16>) -> tensor<4x3xf32>
// CHECK: stablehlo.dot_general %arg0, {{.*}} (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
// CHECK: stablehlo.convolution
