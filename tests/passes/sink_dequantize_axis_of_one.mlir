// RUN: place-weights, sink-dequantize
// SETTINGS: weights.format=int4 activations.format=float
func.func @main(%x: tensor<4x3xf32>, %w: tensor<3x8x1xf32> {jq.weight = "w"}) -> tensor<4x1x8xf32> {
  %0 = stablehlo.transpose %w, dims = [0, 2, 1] : (tensor<3x8x1xf32>) -> tensor<3x1x8xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0]
       : (tensor<4x3xf32>, tensor<3x1x8xf32>) -> tensor<4x1x8xf32>
  return %1 : tensor<4x1x8xf32>
}
// Codes of 4 bits cannot be packed along an axis of one element: the weight is stored in 8 bits, and
// those move as elements do.
// CHECK: changed: place-weights, sink-dequantize
// CHECK: weight w:codes: int8[3, 8, 1]
// CHECK: [[C:%[0-9]+]] = stablehlo.transpose %arg1
// CHECK: stablehlo.composite "jq.dequantize" [[C]]
