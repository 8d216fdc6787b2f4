// RUN: place-weights, place-activations, sink-dequantize, lower-contractions, unroll-loops {stacks = true}, kernel-gemm
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx512_vnni
// Under any placement, for kernels: a loop whose product reads a slice of a stack. The other loop stays.
func.func @main(%x: tensor<4x8xf32>, %s: tensor<2x8x8xf32> {jq.weight = "stack"},
                %w: tensor<8x8xf32> {jq.weight = "w"}) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<4x8xf32>
  cond {
    %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %l = stablehlo.dynamic_slice %s, %i, %zero, %zero, sizes = [1, 8, 8]
         : (tensor<2x8x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x8xf32>
    %v = stablehlo.reshape %l : (tensor<1x8x8xf32>) -> tensor<8x8xf32>
    %y = stablehlo.dot_general %c, %v, contracting_dims = [1] x [0]
         : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y : tensor<i32>, tensor<4x8xf32>
  }
  %q:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<4x8xf32>
  cond {
    %p = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %y = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0]
         : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %y : tensor<i32>, tensor<4x8xf32>
  }
  return %r#1, %q#1 : tensor<4x8xf32>, tensor<4x8xf32>
}
// CHECK: changed: {{.*}}unroll-loops, kernel-gemm
// CHECK: call @jq_gemm_4x8x8_{{.*}} {jq.name = "stack"}
// CHECK: call @jq_gemm_4x8x8_{{.*}} {jq.name = "stack"}
// CHECK: stablehlo.while
// CHECK: call @jq_gemm_4x8x8_{{.*}} {jq.name = "w"}
// CHECK-NOT: stablehlo.while
