// RUN: place-weights, place-activations, lower-contractions, kernel-convolution, kernel-quantize, kernel-pairs
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx2
// The second one has too few pixels to put their codes in order.
func.func @main(%x: tensor<1x8x8x32xf32>, %w: tensor<3x3x32x24xf32> {jq.weight = "w"},
                %v: tensor<3x3x32x16xf32> {jq.weight = "v"}) -> (tensor<1x8x8x24xf32>, tensor<1x2x2x16xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x8x32xf32>, tensor<3x3x32x24xf32>) -> tensor<1x8x8x24xf32>
  %1 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {stride = [4, 4]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x8x32xf32>, tensor<3x3x32x16xf32>) -> tensor<1x2x2x16xf32>
  return %0, %1 : tensor<1x8x8x24xf32>, tensor<1x2x2x16xf32>
}
// CHECK: changed: {{.*}}kernel-pairs
// CHECK: call @[[KERNEL:jq_pair_convolution_1x10x10x32_24x3x3_[0-9a-f]+]](
// CHECK-NOT: @jq_convolution_1x10x10x32
// CHECK: call @jq_convolution_1x8x8x32_16x3x3_
// CHECK: func.func private @[[KERNEL]](tensor<1x10x320xi8>, tensor<3x3x{{[0-9]+}}x64xi8>, tensor<3x3x2x96xi8>, tensor<3x3x{{[0-9]+}}xi32>, tensor<24xi32>
