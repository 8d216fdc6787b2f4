// RUN: shield-starts
// Both read the value, and neither waits for the other.
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.minimum %x, %x : tensor<4xf32>
  %1:2 = stablehlo.while(%i = %zero, %a = %0) : tensor<i32>, tensor<4xf32>
    cond {
      %3 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.add %a, %x : tensor<4xf32>
      %4 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %4, %3 : tensor<i32>, tensor<4xf32>
    }
  %2 = stablehlo.add %0, %x : tensor<4xf32>
  return %1#1, %2 : tensor<4xf32>, tensor<4xf32>
}
// CHECK: changed: none
