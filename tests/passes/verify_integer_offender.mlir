// RUN: place-activations, verify-integer
// SETTINGS: weights.format=int8 activations.format=int8
// ERROR: dot_general has no integer form here
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x8xf32> {jq.weight = "w"},
                %v: tensor<8x8xf32> {jq.weight = "v"}) -> tensor<4x8xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.tanh %0 : tensor<4x8xf32>
  %2 = stablehlo.dot_general %1, %v, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}
