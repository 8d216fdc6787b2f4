// RUN: shield-updates
// Neither a part of another tensor, nor anything that is written among constants, nor two parts of one tensor that are written into another.
func.func @main(%x: tensor<4x3xf32>, %y: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %c = stablehlo.constant dense<0.0> : tensor<4x3xf32>
  %0 = stablehlo.slice %x [1:4, 0:3] : (tensor<4x3xf32>) -> tensor<3x3xf32>
  %1 = stablehlo.dynamic_update_slice %c, %0, %z, %z
    : (tensor<4x3xf32>, tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
  %2 = stablehlo.dynamic_update_slice %y, %0, %z, %z
    : (tensor<4x3xf32>, tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
  %3 = stablehlo.dynamic_update_slice %1, %0, %z, %z
    : (tensor<4x3xf32>, tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
  return %1, %2, %3 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>
}
// CHECK: changed: none
