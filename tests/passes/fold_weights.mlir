// RUN: fold-weights
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"},
                %m: tensor<8x3xf32> {jq.weight = "mask"}) -> tensor<4x3xf32> {
  %0 = stablehlo.multiply %w, %m : tensor<8x3xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// CHECK: changed: fold-weights
// CHECK: weight w{{.*}}: float32[8, 3]
// CHECK-NOT: multiply
// CHECK: dot_general %arg0, %arg1
