// RUN: shield-starts
// The first loop starts with what is computed from %0, and what else is computed from it is read
// after the loop; of the second, the loop itself reads it.
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.minimum %x, %x : tensor<4xf32>
  %1 = stablehlo.abs %0 : tensor<4xf32>
  %2:2 = stablehlo.while(%i = %zero, %a = %1) : tensor<i32>, tensor<4xf32>
    cond {
      %9 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    } do {
      %9 = stablehlo.add %a, %x : tensor<4xf32>
      %10 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %10, %9 : tensor<i32>, tensor<4xf32>
    }
  %3 = stablehlo.negate %0 : tensor<4xf32>
  %4 = stablehlo.add %2#1, %3 : tensor<4xf32>
  %5 = stablehlo.maximum %x, %x : tensor<4xf32>
  %6 = stablehlo.abs %5 : tensor<4xf32>
  %7:2 = stablehlo.while(%i = %zero, %a = %6) : tensor<i32>, tensor<4xf32>
    cond {
      %9 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    } do {
      %9 = stablehlo.add %a, %5 : tensor<4xf32>
      %10 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %10, %9 : tensor<i32>, tensor<4xf32>
    }
  %8 = stablehlo.negate %7#1 : tensor<4xf32>
  return %4, %8 : tensor<4xf32>, tensor<4xf32>
}
// CHECK: changed: shield-starts
// CHECK: [[M:%.*]] = stablehlo.abs
// CHECK-NEXT: [[B:%.*]] = stablehlo.optimization_barrier [[M]]
// CHECK-NEXT: stablehlo.while({{.*}} = [[B]])
// CHECK-NOT: optimization_barrier
