// RUN: carry-codes
// Floats are carried as they are.
func.func @main(%x: tensor<4xf32>, %p: tensor<i32>) -> tensor<4xf32> {
  %r = "stablehlo.case"(%p) ({
    %y = stablehlo.tanh %x : tensor<4xf32>
    stablehlo.return %y : tensor<4xf32>
  }, {
    stablehlo.return %x : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
// CHECK: changed: none
