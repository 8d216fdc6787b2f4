// RUN: place-weights, place-activations, fit-biases
// SETTINGS: weights.format=int8 activations.format=int8 activations.mode=static
// RANGES: w:0=-1,4.1
// A bias that an accumulator holds leaves the weight as it is.
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %b = stablehlo.constant dense<[0.0, 1.0, -1.0]> : tensor<3xf32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
  %3 = stablehlo.add %1, %2 : tensor<4x3xf32>
  return %3 : tensor<4x3xf32>
}
// CHECK: changed: place-weights, place-activations
// CHECK-NOT: fit-biases
