// RUN: fold-weights
// The first step of a recurrent layer: the state is zeros.
func.func @main(%x: tensor<4x3xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<4x8xf32>
  %0 = stablehlo.dot_general %zero, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.add %x, %0 : tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// CHECK: changed: fold-weights
// CHECK: weight w{{.*}}: float32[4, 3]
// CHECK-NOT: dot_general
// CHECK: add %arg0, %arg1
