// RUN: shield-starts
// What only the loop reads, and an input.
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.minimum %x, %x : tensor<4xf32>
  %1:3 = stablehlo.while(%i = %zero, %a = %0, %b = %x) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
    cond {
      %3 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.add %a, %b : tensor<4xf32>
      %4 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %4, %3, %a : tensor<i32>, tensor<4xf32>, tensor<4xf32>
    }
  %2 = stablehlo.add %1#1, %x : tensor<4xf32>
  return %2 : tensor<4xf32>
}
// CHECK: changed: none
