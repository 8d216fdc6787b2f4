// RUN: shield-starts
// Two loops start with one value, which is read behind them, too: one barrier for all.
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.minimum %x, %x : tensor<4xf32>
  %1:2 = stablehlo.while(%i = %zero, %a = %0) : tensor<i32>, tensor<4xf32>
    cond {
      %4 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %4 = stablehlo.add %a, %x : tensor<4xf32>
      %5 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %5, %4 : tensor<i32>, tensor<4xf32>
    }
  %2:2 = stablehlo.while(%i = %zero, %a = %0) : tensor<i32>, tensor<4xf32>
    cond {
      %4 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %4 = stablehlo.subtract %a, %x : tensor<4xf32>
      %5 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %5, %4 : tensor<i32>, tensor<4xf32>
    }
  %3 = stablehlo.add %2#1, %0 : tensor<4xf32>
  return %1#1, %3 : tensor<4xf32>, tensor<4xf32>
}
// CHECK: changed: shield-starts
// CHECK: [[M:%.*]] = stablehlo.minimum
// CHECK-NEXT: [[B:%.*]] = stablehlo.optimization_barrier [[M]]
// CHECK: stablehlo.while({{.*}} = [[B]])
// CHECK: stablehlo.while({{.*}} = [[B]])
// CHECK: stablehlo.add {{.*}}, [[B]]
