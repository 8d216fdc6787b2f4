// RUN: place-weights, place-activations, lower-contractions
// SETTINGS: weights.format=int8 activations.format=int8
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// Codes, zero points and sums of both sides are operands of one marker.
// CHECK: weight w:sum: int32[1, 3]
// CHECK: [[Q:%[0-9]+]]:3 = stablehlo.composite "jq.quantize_dynamic" %arg0
// CHECK-NEXT: [[Y:%[0-9]+]] = stablehlo.composite "jq.contract" [[Q]]#0, [[Q]]#1, [[Q]]#2, %arg1, %arg2, %arg3
// CHECK-NEXT: return [[Y]]
