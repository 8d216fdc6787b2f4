// RUN: place-activations
// SETTINGS: weights.format=int8 activations.format=int8
func.func @main(%x: tensor<4x8xf32>, %v: tensor<8x3xf32> {jq.weight = "v"},
                %w: tensor<8x3xf32> {jq.weight = "w"}) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %0 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %0, %1 : tensor<4x3xf32>, tensor<4x3xf32>
}
// One quantize for both uses of the same value.
// CHECK: changed: place-activations
// CHECK: [[Q:%[0-9]+]]:3 = stablehlo.composite "jq.quantize_dynamic" %arg0
// CHECK-SAME: scheme = "asymmetric"
// CHECK-NEXT: [[D:%[0-9]+]] = stablehlo.composite "jq.dequantize" [[Q]]#0, [[Q]]#1, [[Q]]#2
// CHECK-NEXT: dot_general [[D]], %arg1
// CHECK-NEXT: dot_general [[D]], %arg2
