// RUN: place-weights
// SETTINGS: weights.format=int8 activations.format=float
// RULE: head: float
func.func @main(%x: tensor<4x8xf32>, %w: tensor<3x8xf32> {jq.weight = "w"}) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<3x8xf32>) -> tensor<8x3xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] {jq.name = "body"}
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] {jq.name = "head"}
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1, %2 : tensor<4x3xf32>, tensor<4x3xf32>
}
// They share the transpose, and each reads a weight of its own.
// CHECK: weight w:float: float32[3, 8]
// CHECK: weight w:codes: int8[3, 8]
// CHECK: [[D:%[0-9]+]] = stablehlo.composite "jq.dequantize"
// CHECK-NEXT: [[T:%[0-9]+]] = stablehlo.transpose [[D]]
// CHECK-NEXT: dot_general %arg0, [[T]], {{.*}} {jq.name = "body"
// CHECK-NEXT: [[F:%[0-9]+]] = stablehlo.transpose %arg1
// CHECK-NEXT: dot_general %arg0, [[F]], {{.*}} {jq.name = "head"
