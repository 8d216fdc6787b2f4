// RUN: place-float-types
// SETTINGS: op_types=dot_general,convolution weights.format=float activations.format=float float_type=bfloat16
// A sum reads the rounded numbers of what a convolution reads, not those of a matrix product.
func.func @main(%x: tensor<1x4x5x8xf32>, %y: tensor<4x8xf32>, %a: tensor<1x1x8x8xf32> {jq.weight = "a"}, %b: tensor<8x8xf32> {jq.weight = "b"})
    -> (tensor<1x4x5x8xf32>, tensor<4x8xf32>, tensor<1x4x5x8xf32>) {
  %0 = stablehlo.convolution(%x, %a) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, jq.name = "a"}
       : (tensor<1x4x5x8xf32>, tensor<1x1x8x8xf32>) -> tensor<1x4x5x8xf32>
  %1 = stablehlo.add %0, %x : tensor<1x4x5x8xf32>
  %2 = stablehlo.dot_general %y, %b, contracting_dims = [1] x [0] {jq.name = "b"} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %3 = stablehlo.add %2, %y : tensor<4x8xf32>
  %4 = stablehlo.multiply %x, %x : tensor<1x4x5x8xf32>
  return %1, %3, %4 : tensor<1x4x5x8xf32>, tensor<4x8xf32>, tensor<1x4x5x8xf32>
}
// CHECK: changed: place-float-types
// CHECK: %[[CONV:.*]] = stablehlo.convolution
// CHECK: %[[HALF:.*]] = stablehlo.convert %arg0 : (tensor<1x4x5x8xf32>) -> tensor<1x4x5x8xbf16>
// CHECK: %[[BACK:.*]] = stablehlo.convert %[[HALF]] : (tensor<1x4x5x8xbf16>) -> tensor<1x4x5x8xf32>
// CHECK: stablehlo.add %[[CONV]], %[[BACK]]
// CHECK: stablehlo.add {{.*}}, %arg1 {
// CHECK: stablehlo.multiply %arg0, %arg0
