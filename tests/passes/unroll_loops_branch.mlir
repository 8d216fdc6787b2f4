// RUN: unroll-loops
// SETTINGS: placement=early
// A choice that weights and constants decide; the other one waits for an input.
func.func @main(%x: tensor<4xf32>, %i: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
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
