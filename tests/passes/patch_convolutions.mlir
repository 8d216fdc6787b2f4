// RUN: patch-convolutions
func.func @main(%x: tensor<1x8x8x4xf32>, %y: tensor<2x9x3xbf16>,
    %w: tensor<1x1x4x6xf32> {jq.weight = "w"}, %v: tensor<5x3x2xbf16> {jq.weight = "v"})
    -> (tensor<1x4x4x6xf32>, tensor<2x2x9xbf16>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x4xf32>, tensor<1x1x4x6xf32>) -> tensor<1x4x4x6xf32>
  %1 = stablehlo.convolution(%y, %v) dim_numbers = [b, 0, f]x[o, i, 0]->[b, f, 0],
    window = {pad = [[1, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x9x3xbf16>, tensor<5x3x2xbf16>) -> tensor<2x5x9xbf16>
  %2 = stablehlo.slice %1 [0:2, 0:2, 0:9] : (tensor<2x5x9xbf16>) -> tensor<2x2x9xbf16>
  return %0, %2 : tensor<1x4x4x6xf32>, tensor<2x2x9xbf16>
}
// CHECK: [[X:%[0-9]+]] = stablehlo.slice %arg0 [0:1, 0:7:2, 0:7:2, 0:4]
// CHECK: [[R:%[0-9]+]] = stablehlo.reshape [[X]] : (tensor<1x4x4x4xf32>) -> tensor<16x4xf32>
// CHECK: dot_general [[R]], {{.*}} -> tensor<16x6xf32>
// CHECK: stablehlo.concatenate {{.*}} -> tensor<2x9x6xbf16>
// CHECK: dot_general {{.*}} (tensor<18x6xbf16>, tensor<6x5xbf16>) -> tensor<18x5xbf16>
// CHECK-NOT: convolution
