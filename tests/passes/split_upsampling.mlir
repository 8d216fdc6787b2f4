// RUN: split-upsampling
// Two by two with strides of two, whole, and a vector added; three with strides of two in one
// dimension, which keeps a position less than its phases have.
func.func @main(%x: tensor<1x4x5x3xf32>, %y: tensor<2x3x5xf32>,
    %w: tensor<3x2x2x6xf32> {jq.weight = "w"}, %b: tensor<6xf32> {jq.weight = "b"},
    %v: tensor<4x3x3xf32> {jq.weight = "v"}) -> (tensor<1x8x10x6xf32>, tensor<2x4x11xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[i, 0, 1, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x4x5x3xf32>, tensor<3x2x2x6xf32>) -> tensor<1x8x10x6xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [3] : (tensor<6xf32>) -> tensor<1x8x10x6xf32>
  %2 = stablehlo.add %0, %1 : tensor<1x8x10x6xf32>
  %3 = stablehlo.convolution(%y, %v) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
    window = {pad = [[2, 2]], lhs_dilate = [2], reverse = [true]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x3x5xf32>, tensor<4x3x3xf32>) -> tensor<2x4x11xf32>
  return %2, %3 : tensor<1x8x10x6xf32>, tensor<2x4x11xf32>
}
// CHECK: changed: split-upsampling
// CHECK-DAG: weight w: float32[3, 1, 1, 24]
// CHECK-DAG: weight v: float32[8, 3, 2]
// CHECK-DAG: weight {{.*}}:bias: float32[24]
// CHECK: stablehlo.convolution(%arg0, %arg{{[0-9]}}) dim_numbers = [b, 0, 1, f]x[i, 0, 1, o]->[b, 0, 1, f]
// CHECK-NOT: reverse
// CHECK: stablehlo.add {{.*}} : tensor<1x4x5x24xf32>
// CHECK: reshape {{.*}} -> tensor<1x4x5x2x2x6xf32>
// CHECK: transpose {{.*}}, dims = [0, 1, 3, 2, 4, 5]
// CHECK: reshape {{.*}} -> tensor<1x8x10x6xf32>
// CHECK: stablehlo.convolution(%arg1, {{.*}} -> tensor<2x8x6xf32>
// CHECK: reshape {{.*}} -> tensor<2x2x4x6xf32>
// CHECK: transpose {{.*}}, dims = [0, 2, 3, 1]
// CHECK: reshape {{.*}} -> tensor<2x4x12xf32>
// CHECK: slice {{.*}} [0:2, 0:4, 0:11]
