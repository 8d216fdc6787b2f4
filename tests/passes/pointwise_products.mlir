// RUN: pointwise-products
// SETTINGS: activations.format=mxint8 activations.granularity=per-block
// A kernel in another order; channels that are one short block; in one dimension.
func.func @main(%x: tensor<2x5x4x96xf32>, %y: tensor<2x5x20xf32>,
    %w: tensor<24x1x1x96xf32> {jq.weight = "w"}, %v: tensor<1x20x7xf32> {jq.weight = "v"})
    -> (tensor<2x5x4x24xf32>, tensor<2x5x7xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[o, 0, 1, i]->[b, 0, 1, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, jq.name = "w"}
    : (tensor<2x5x4x96xf32>, tensor<24x1x1x96xf32>) -> tensor<2x5x4x24xf32>
  %1 = stablehlo.convolution(%y, %v) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, jq.name = "v"}
    : (tensor<2x5x20xf32>, tensor<1x20x7xf32>) -> tensor<2x5x7xf32>
  return %0, %1 : tensor<2x5x4x24xf32>, tensor<2x5x7xf32>
}
// CHECK: changed: pointwise-products
// CHECK-DAG: [[T:%[0-9]+]] = stablehlo.transpose %arg2, dims = [1, 2, 3, 0]
// CHECK-DAG: [[W:%[0-9]+]] = stablehlo.reshape [[T]] : (tensor<1x1x96x24xf32>) -> tensor<96x24xf32>
// CHECK: stablehlo.dot_general %arg0, [[W]], contracting_dims = [3] x [0] {jq.name = "w"}
// CHECK: [[V:%[0-9]+]] = stablehlo.reshape %arg3 : (tensor<1x20x7xf32>) -> tensor<20x7xf32>
// CHECK: stablehlo.dot_general %arg1, [[V]], contracting_dims = [2] x [0] {jq.name = "v"}
// CHECK-NOT: convolution
