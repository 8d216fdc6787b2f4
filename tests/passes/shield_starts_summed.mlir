// RUN: shield-starts
// What the loop starts with is summed up beside it: an op with a region counts as well.
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<f32>, tensor<4xf32>) {
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
  %nought = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%0 init: %nought) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  %3 = stablehlo.negate %1#1 : tensor<4xf32>
  return %2, %3 : tensor<f32>, tensor<4xf32>
}
// CHECK: changed: shield-starts
// CHECK: [[M:%.*]] = stablehlo.minimum
// CHECK-NEXT: [[B:%.*]] = stablehlo.optimization_barrier [[M]]
// CHECK: stablehlo.while({{.*}} = [[B]])
// CHECK: stablehlo.reduce([[B]]
