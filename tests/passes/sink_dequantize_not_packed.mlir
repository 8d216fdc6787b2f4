// RUN: place-weights, sink-dequantize
// SETTINGS: weights.format=int4 activations.format=float
func.func @main(%x: tensor<4x8xf32>, %w: tensor<3x8xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<3x8xf32>) -> tensor<8x3xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// Two codes share a byte along the last axis: it cannot become the first.
// CHECK: changed: place-weights{{$}}
// CHECK: [[D:%[0-9]+]] = stablehlo.composite "jq.dequantize"
// CHECK-NEXT: stablehlo.transpose [[D]]
