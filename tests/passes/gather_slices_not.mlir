// RUN: gather-slices
// Several rows of what is computed, a part of rows, two positions, and one that is known.
func.func @main(%x: tensor<4x8xf32>, %p: tensor<i32>)
    -> (tensor<2x8xf32>, tensor<1x4xf32>, tensor<1x8xf32>, tensor<1x8xf32>) {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.negate %x : tensor<4x8xf32>
  %1 = stablehlo.dynamic_slice %0, %p, %c, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  %2 = stablehlo.dynamic_slice %x, %p, %c, sizes = [1, 4] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
  %3 = stablehlo.dynamic_slice %x, %p, %p, sizes = [1, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
  %4 = stablehlo.dynamic_slice %x, %c, %c, sizes = [1, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
  return %1, %2, %3, %4 : tensor<2x8xf32>, tensor<1x4xf32>, tensor<1x8xf32>, tensor<1x8xf32>
}
// CHECK: changed: none
// CHECK-COUNT-4: stablehlo.dynamic_slice
