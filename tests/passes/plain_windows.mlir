// RUN: plain-windows
func.func @main(%x: tensor<1x5x3xi8>, %w: tensor<3x3x4xi8>) -> tensor<1x6x4xi32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {pad = [[-1, 0]], lhs_dilate = [2], reverse = [true]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x5x3xi8>, tensor<3x3x4xi8>) -> tensor<1x6x4xi32>
  return %0 : tensor<1x6x4xi32>
}
// CHECK: [[W:%[0-9]+]] = stablehlo.reverse %arg1, dims = [0]
// CHECK: [[X:%[0-9]+]] = stablehlo.pad %arg0, {{.*}}, low = [0, -1, 0], high = [0, 0, 0], interior = [0, 1, 0]
// CHECK-NEXT: convolution([[X]], [[W]])
// CHECK-SAME: window = {pad = {{\[\[}}0, 0]], lhs_dilate = [1]}
