// RUN: recognize-dequantize
// Codes of a weight are stored as that weight; one zero point for each row.
func.func @main(%x: tensor<4x8xf32>, %w: tensor<3x8xi8> {jq.weight = "w"}, %z: tensor<3xi8> {jq.weight = "z"}, %s: tensor<3xf32> {jq.weight = "s"}) -> tensor<4x3xf32> {
  %0 = stablehlo.convert %w : (tensor<3x8xi8>) -> tensor<3x8xf32>
  %1 = stablehlo.convert %z : (tensor<3xi8>) -> tensor<3xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<3xf32>) -> tensor<3x8xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<3x8xf32>
  %4 = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<3xf32>) -> tensor<3x8xf32>
  %5 = stablehlo.multiply %3, %4 : tensor<3x8xf32>
  %6 = stablehlo.dot_general %x, %5, contracting_dims = [1] x [1] : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<4x3xf32>
  return %6 : tensor<4x3xf32>
}
// CHECK: changed: recognize-dequantize
// CHECK: weight w:codes: int8[3, 8]
// CHECK: weight w:scale: float32[3, 1]
// CHECK: weight w:zero_point: int8[3, 1]
// CHECK: %[[W:.*]] = stablehlo.composite "jq.dequantize" %arg1, %arg2, %arg3
// CHECK-NEXT: %[[Y:.*]] = stablehlo.dot_general %arg0, %[[W]]
// CHECK-NEXT: return %[[Y]]
