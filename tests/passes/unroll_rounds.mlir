// RUN: unroll-rounds
// The rounds of a generator become their iterations, also inside a loop of unknown length. A loop of floats stays, and one that
// runs too often.
func.func @main(%x: tensor<3xi32>, %f: tensor<3xf32>) -> (tensor<3xi32>, tensor<3xi32>, tensor<3xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %many = stablehlo.constant dense<100> : tensor<i32>
  %r:2 = stablehlo.while(%c = %x, %k = %one) : tensor<3xi32>, tensor<i32>
  cond {
    %p = stablehlo.compare LT, %k, %many : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %s:2 = stablehlo.while(%i = %zero, %d = %c) : tensor<i32>, tensor<3xi32>
    cond {
      %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %b = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<3xi32>
      %e = stablehlo.xor %d, %b : tensor<3xi32>
      %g = stablehlo.shift_left %e, %b : tensor<3xi32>
      %n = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %n, %g : tensor<i32>, tensor<3xi32>
    }
    %k2 = stablehlo.add %k, %k : tensor<i32>
    stablehlo.return %s#1, %k2 : tensor<3xi32>, tensor<i32>
  }
  %t:2 = stablehlo.while(%i = %zero, %d = %x) : tensor<i32>, tensor<3xi32>
  cond {
    %p = stablehlo.compare LT, %i, %many : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %e = stablehlo.add %d, %d : tensor<3xi32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %e : tensor<i32>, tensor<3xi32>
  }
  %u:2 = stablehlo.while(%i = %zero, %d = %f) : tensor<i32>, tensor<3xf32>
  cond {
    %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %e = stablehlo.tanh %d : tensor<3xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %e : tensor<i32>, tensor<3xf32>
  }
  return %r#0, %t#1, %u#1 : tensor<3xi32>, tensor<3xi32>, tensor<3xf32>
}
// CHECK: changed: unroll-rounds
// CHECK: stablehlo.while
// CHECK: stablehlo.shift_left
// CHECK: stablehlo.shift_left
// CHECK-NOT: stablehlo.shift_left
// CHECK: stablehlo.while
// CHECK-NOT: stablehlo.tanh
// CHECK: stablehlo.while
// CHECK: stablehlo.tanh
// CHECK-NOT: stablehlo.tanh
