// RUN: unroll-loops
// SETTINGS: placement=early
// Three iterations, each with its slice of the stack; a name for each copy.
func.func @main(%x: tensor<4x8xf32>, %s: tensor<3x8x8xf32> {jq.weight = "stack"}) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<4x8xf32>
  cond {
    %p = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %i, %zero, %zero, sizes = [1, 8, 8]
         : (tensor<3x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
    %w = stablehlo.reshape %l : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
    %y = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0]
         : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y : tensor<i32>, tensor<4x8xf32>
  }
  return %r#1 : tensor<4x8xf32>
}
// CHECK: changed: unroll-loops
// CHECK-NOT: stablehlo.while
// CHECK: stablehlo.slice %arg1 [0:1, 0:8, 0:8]
// CHECK: stablehlo.dot_general %arg0, {{.*}}jq.name = "stack[0]"
// CHECK: stablehlo.slice %arg1 [1:2, 0:8, 0:8]
// CHECK: jq.name = "stack[1]"
// CHECK: stablehlo.slice %arg1 [2:3, 0:8, 0:8]
// CHECK: jq.name = "stack[2]"
// CHECK-NOT: dynamic_slice
