// RUN: shield-pads
// One write only: an input that is padded, a pool without padding, an update of what is padded.
func.func @main(%x: tensor<4x6xf32>, %u: tensor<1x6xf32>, %i: tensor<i32>)
    -> (tensor<4x7xf32>, tensor<5x6xf32>) {
  %0 = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.pad %x, %0, low = [0, 1], high = [0, 1], interior = [0, 0]
    : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x8xf32>
  %2 = "stablehlo.reduce_window"(%1, %0) <{window_dimensions = array<i64: 1, 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x7xf32>
  %3 = stablehlo.pad %x, %0, low = [1, 0], high = [0, 0], interior = [0, 0]
    : (tensor<4x6xf32>, tensor<f32>) -> tensor<5x6xf32>
  %4 = stablehlo.dynamic_update_slice %3, %u, %i, %i
    : (tensor<5x6xf32>, tensor<1x6xf32>, tensor<i32>, tensor<i32>) -> tensor<5x6xf32>
  return %2, %4 : tensor<4x7xf32>, tensor<5x6xf32>
}
// CHECK: changed: none
