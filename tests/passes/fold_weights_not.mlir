// RUN: fold-weights
// A weight itself, an expression of an input, and one that would grow stay as they are.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8x3xf32>, %w: tensor<8x3xf32> {jq.weight = "w"},
                %v: tensor<3xf32> {jq.weight = "v"})
    -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) {
  %0 = stablehlo.multiply %w, %y : tensor<8x3xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %n = stablehlo.negate %v : tensor<3xf32>
  %b = stablehlo.broadcast_in_dim %n, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
  %3 = stablehlo.dot_general %x, %b, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1, %2, %3 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>
}
// CHECK: changed: none
// CHECK: negate
