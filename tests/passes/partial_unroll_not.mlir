// RUN: partial-unroll {limit = 8}
// Not a loop of which nobody knows how often it runs, nor one with many ops, one that counts in floats, or one of five steps.
func.func @main(%x: tensor<f32>, %k: tensor<i32>) -> (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.tanh %c : tensor<f32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y : tensor<i32>, tensor<f32>
  }
  %s:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %a = stablehlo.tanh %c : tensor<f32>
    %b = stablehlo.tanh %a : tensor<f32>
    %y = stablehlo.tanh %b : tensor<f32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y : tensor<i32>, tensor<f32>
  }
  %low = stablehlo.constant dense<0.0> : tensor<f32>
  %half = stablehlo.constant dense<1.5> : tensor<f32>
  %high = stablehlo.constant dense<2.5> : tensor<f32>
  %t:2 = stablehlo.while(%i = %low, %c = %x) : tensor<f32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %high : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.tanh %c : tensor<f32>
    %n = stablehlo.add %i, %half : tensor<f32>
    stablehlo.return %n, %y : tensor<f32>, tensor<f32>
  }
  %five = stablehlo.constant dense<5> : tensor<i32>
  %u:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.tanh %c : tensor<f32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y : tensor<i32>, tensor<f32>
  }
  return %r#1, %s#1, %t#1, %u#1 : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}
// CHECK: changed: none
