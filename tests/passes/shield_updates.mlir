// RUN: shield-updates
// What a loop carries is still the tensor that it starts with, and what was written among constants is the tensor that it is read from.
func.func @main(%x: tensor<4x3xf32>, %n: tensor<i32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %m = stablehlo.maximum %x, %x : tensor<4x3xf32>
  %s = stablehlo.slice %m [1:4, 0:3] : (tensor<4x3xf32>) -> tensor<3x3xf32>
  %l:2 = stablehlo.while(%i = %z, %c = %x) : tensor<i32>, tensor<4x3xf32>
    cond {
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %u = stablehlo.dynamic_update_slice %c, %s, %z, %z
        : (tensor<4x3xf32>, tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      stablehlo.return %j, %u : tensor<i32>, tensor<4x3xf32>
    }
  %c = stablehlo.constant dense<0.0> : tensor<4x3xf32>
  %w = stablehlo.dynamic_update_slice %c, %s, %z, %z
    : (tensor<4x3xf32>, tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
  %t = stablehlo.slice %w [0:3, 0:3] : (tensor<4x3xf32>) -> tensor<3x3xf32>
  %v = stablehlo.dynamic_update_slice %w, %t, %one, %z
    : (tensor<4x3xf32>, tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
  return %l#1, %v : tensor<4x3xf32>, tensor<4x3xf32>
}
// CHECK: changed: shield-updates
// CHECK: %[[PART:.*]] = stablehlo.slice
// CHECK: stablehlo.while
// CHECK: %[[COPY:.*]] = stablehlo.optimization_barrier %[[PART]]
// CHECK: dynamic_update_slice %{{.*}}, %[[COPY]]
// CHECK: %[[WRITTEN:.*]] = stablehlo.dynamic_update_slice
// CHECK: %[[ROWS:.*]] = stablehlo.slice %[[WRITTEN]]
// CHECK: %[[MOVED:.*]] = stablehlo.optimization_barrier %[[ROWS]]
// CHECK: dynamic_update_slice %[[WRITTEN]], %[[MOVED]]
