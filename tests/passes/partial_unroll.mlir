// RUN: partial-unroll {times = 4}
// Twelve steps, four an iteration. Rows that are stacked are put there at once.
func.func @main(%x: tensor<8xf32>, %s: tensor<12x8xf32>) -> (tensor<8xf32>, tensor<12x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<12> : tensor<i32>
  %all = stablehlo.constant dense<0.0> : tensor<12x8xf32>
  %r:3 = stablehlo.while(%i = %zero, %c = %x, %a = %all) : tensor<i32>, tensor<8xf32>, tensor<12x8xf32>
  cond {
    %p = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %i, %zero, sizes = [1, 8] : (tensor<12x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %v = stablehlo.reshape %l : (tensor<1x8xf32>) -> tensor<8xf32>
    %y = stablehlo.multiply %c, %v : tensor<8xf32>
    %row = stablehlo.reshape %y : (tensor<8xf32>) -> tensor<1x8xf32>
    %b = stablehlo.dynamic_update_slice %a, %row, %i, %zero : (tensor<12x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<12x8xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y, %b : tensor<i32>, tensor<8xf32>, tensor<12x8xf32>
  }
  return %r#1, %r#2 : tensor<8xf32>, tensor<12x8xf32>
}
// CHECK: changed: partial-unroll
// CHECK: %[[FOUR:.*]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK: stablehlo.while(%[[I:.*]] = {{.*}}, {{.*}}, %[[ALL:.*]] = {{.*}})
// CHECK-COUNT-4: stablehlo.multiply
// CHECK-NOT: stablehlo.dynamic_update_slice
// CHECK: %[[ROWS:.*]] = stablehlo.concatenate {{.*}} -> tensor<4x8xf32>
// CHECK: %[[UPDATED:.*]] = stablehlo.dynamic_update_slice %[[ALL]], %[[ROWS]], %[[I]],
// CHECK: %[[NEXT:.*]] = stablehlo.add %[[I]], %[[FOUR]]
// CHECK: stablehlo.return %[[NEXT]], {{.*}}, %[[UPDATED]]
