// RUN: move-transposes
// As many bytes either way: the other operand of the sum would be transposed in its place. What
// has no other order (a scan of rows that are joined, a sort) ends a region too.
func.func @main(%x: tensor<4x6x8xf32>, %y: tensor<8x4x6xf32>) -> (tensor<8x4x6xf32>, tensor<8x24xf32>) {
  %0 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<4x6x8xf32>) -> tensor<8x4x6xf32>
  %1 = stablehlo.add %0, %y : tensor<8x4x6xf32>
  %2 = stablehlo.transpose %x, dims = [2, 1, 0] : (tensor<4x6x8xf32>) -> tensor<8x6x4xf32>
  %3 = stablehlo.exponential %2 : tensor<8x6x4xf32>
  %4 = stablehlo.reshape %3 : (tensor<8x6x4xf32>) -> tensor<8x24xf32>
  return %1, %4 : tensor<8x4x6xf32>, tensor<8x24xf32>
}
// CHECK: changed: none
