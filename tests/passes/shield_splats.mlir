// RUN: shield-splats
func.func private @kernel(tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %c = stablehlo.constant dense<5.0> : tensor<1xf32>
  %d = stablehlo.constant dense<6.0> : tensor<1xf32>
  %i = stablehlo.constant dense<0> : tensor<i32>
  %0 = func.call @kernel(%x, %c) : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
  %1:2 = stablehlo.while(%j = %i, %y = %0) : tensor<i32>, tensor<2xf32>
    cond {
      %n = stablehlo.constant dense<3> : tensor<i32>
      %t = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      %same = stablehlo.constant dense<5.0> : tensor<1xf32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %k = stablehlo.add %j, %one : tensor<i32>
      %z = func.call @kernel(%y, %same) : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
      %u = func.call @kernel(%z, %d) : (tensor<2xf32>, tensor<1xf32>) -> tensor<2xf32>
      stablehlo.return %k, %u : tensor<i32>, tensor<2xf32>
    }
  return %1#1 : tensor<2xf32>
}
// CHECK: [[B:%[0-9]+]] = stablehlo.optimization_barrier
// CHECK-NOT: optimization_barrier
// CHECK: call @kernel(%arg0, [[B]])
// CHECK: call @kernel({{.*}}, [[B]])
// CHECK: call @kernel({{.*}}, %{{[a-z]}}
