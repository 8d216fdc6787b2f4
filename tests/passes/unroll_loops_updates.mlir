// RUN: unroll-loops
// What the iterations write into all rows of a stack is joined, in the order of the places. Where a row is
// not written, and at a place that is not known, nothing changes.
func.func @main(%x: tensor<4xf32>, %s: tensor<2x4xf32>, %j: tensor<i32>)
    -> (tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %t = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %r:5 = stablehlo.while(%i = %zero, %c = %x, %a = %s, %b = %t, %d = %t)
       : tensor<i32>, tensor<4xf32>, tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  cond {
    %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.tanh %c : tensor<4xf32>
    %v = stablehlo.reshape %y : (tensor<4xf32>) -> tensor<1x4xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    %back = stablehlo.subtract %one, %i : tensor<i32>
    %u = stablehlo.dynamic_update_slice %a, %v, %back, %zero
         : (tensor<2x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    %z = stablehlo.dynamic_update_slice %d, %v, %i, %zero
         : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %k = stablehlo.add %i, %j : tensor<i32>
    %w = stablehlo.dynamic_update_slice %b, %v, %k, %zero
         : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    stablehlo.return %n, %y, %u, %w, %z
      : tensor<i32>, tensor<4xf32>, tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
  }
  return %r#2, %r#3, %r#4 : tensor<2x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
}
// CHECK: changed: unroll-loops
// CHECK: [[A:%.*]] = stablehlo.reshape {{.*}} -> tensor<1x4xf32>
// CHECK: [[B:%.*]] = stablehlo.reshape {{.*}} -> tensor<1x4xf32>
// CHECK: stablehlo.concatenate [[B]], [[A]], dim = 0
// CHECK: stablehlo.dynamic_update_slice
// CHECK: stablehlo.dynamic_update_slice
