// RUN: unroll-loops
// SETTINGS: placement=early
// A choice that constants and a place in a range decide; the other one waits for an input.
func.func @main(%x: tensor<4xf32>, %i: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %places = stablehlo.iota dim = 1 : tensor<2x3xi32>
  %place = stablehlo.slice %places [0:1, 1:2] : (tensor<2x3xi32>) -> tensor<1x1xi32>
  %one = stablehlo.reshape %place : (tensor<1x1xi32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %k = stablehlo.remainder %one, %two : tensor<i32>
  %0 = "stablehlo.case"(%k) ({
    %a = stablehlo.tanh %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }, {
    %b = stablehlo.abs %x : tensor<4xf32>
    stablehlo.return %b : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  %1 = "stablehlo.case"(%i) ({
    %a = stablehlo.negate %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }, {
    %b = stablehlo.abs %x : tensor<4xf32>
    stablehlo.return %b : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
// CHECK: changed: unroll-loops
// CHECK-NOT: tanh
// CHECK: %[[A:.*]] = stablehlo.abs %arg0
// CHECK: %[[C:.*]] = "stablehlo.case"(%arg1)
// CHECK: return %[[A]], %[[C]]
