// RUN: move-transposes
// Two in a row cancel, or become one, also where they move axes of size 1 alone. Of three the last may be left.
func.func @main(%x: tensor<1x1x1x30xf32>, %y: tensor<2x3x4xf32>, %z: tensor<5x6xf32>)
    -> (tensor<1x1x1x30xf32>, tensor<4x2x3xf32>, tensor<6x5xf32>) {
  %0 = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x1x1x30xf32>) -> tensor<1x30x1x1xf32>
  %1 = stablehlo.transpose %0, dims = [0, 2, 3, 1] : (tensor<1x30x1x1xf32>) -> tensor<1x1x1x30xf32>
  %2 = stablehlo.negate %1 : tensor<1x1x1x30xf32>
  %3 = stablehlo.transpose %y, dims = [1, 2, 0] : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %4 = stablehlo.transpose %3, dims = [1, 2, 0] : (tensor<3x4x2xf32>) -> tensor<4x2x3xf32>
  %5 = stablehlo.transpose %z, dims = [1, 0] : (tensor<5x6xf32>) -> tensor<6x5xf32>
  %6 = stablehlo.transpose %5, dims = [1, 0] : (tensor<6x5xf32>) -> tensor<5x6xf32>
  %7 = stablehlo.transpose %6, dims = [1, 0] : (tensor<5x6xf32>) -> tensor<6x5xf32>
  return %2, %4, %7 : tensor<1x1x1x30xf32>, tensor<4x2x3xf32>, tensor<6x5xf32>
}
// CHECK: changed: move-transposes
// CHECK-NOT: dims = [0
// CHECK: stablehlo.negate %arg0
// CHECK: stablehlo.transpose %arg1, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
// CHECK: stablehlo.transpose %arg2, dims = [1, 0] {{.*}}: (tensor<5x6xf32>) -> tensor<6x5xf32>
// CHECK-NOT: stablehlo.transpose
