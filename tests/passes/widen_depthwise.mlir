// RUN: widen-depthwise
func.func @main(%x: tensor<1x5x3xi8>, %w: tensor<3x1x3xi8>, %v: tensor<3x1x6xi8>)
    -> (tensor<1x3x3xi32>, tensor<1x3x6xi32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 3 : i64}
    : (tensor<1x5x3xi8>, tensor<3x1x3xi8>) -> tensor<1x3x3xi32>
  %1 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {} {batch_group_count = 1 : i64, feature_group_count = 3 : i64}
    : (tensor<1x5x3xi8>, tensor<3x1x6xi8>) -> tensor<1x3x6xi32>
  return %0, %1 : tensor<1x3x3xi32>, tensor<1x3x6xi32>
}
// Only the one with a single filter a channel.
// CHECK: [[A:%[0-9]+]] = stablehlo.convert %arg0 : (tensor<1x5x3xi8>) -> tensor<1x5x3xi32>
// CHECK-NEXT: [[X:%[0-9]+]] = stablehlo.optimization_barrier [[A]]
// CHECK-NEXT: [[B:%[0-9]+]] = stablehlo.convert %arg1
// CHECK-NEXT: [[W:%[0-9]+]] = stablehlo.optimization_barrier [[B]]
// CHECK-NEXT: convolution([[X]], [[W]])
// CHECK-NEXT: convolution(%arg0, %arg2)
