// RUN: unroll-loops {limit = 2}, rotate-loops
// SETTINGS: placement=early
// Not a loop that runs more often than the limit, nor one of which nobody knows; conditions on integers stay.
func.func @main(%x: tensor<f32>, %k: tensor<i32>) -> (tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.tanh %c : tensor<f32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y : tensor<i32>, tensor<f32>
  }
  %s:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.tanh %c : tensor<f32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y : tensor<i32>, tensor<f32>
  }
  return %r#1, %s#1 : tensor<f32>, tensor<f32>
}
// CHECK: changed: none
