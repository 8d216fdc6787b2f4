// RUN: place-float-types
// SETTINGS: op_types=dot_general
// RULE: head: bfloat16
// Products of the named op are bfloat16, summed in float32; the other one keeps its type.
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "head"}, %v: tensor<8x3xf32> {jq.weight = "body"}) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %0, %1 : tensor<4x3xf32>, tensor<4x3xf32>
}
// CHECK: changed: place-float-types
// CHECK-DAG: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<4x8xf32>) -> tensor<4x8xbf16>
// CHECK: stablehlo.dot_general %[[X]], %arg2, {{.*}} (tensor<4x8xbf16>, tensor<8x3xbf16>) -> tensor<4x3xf32>
// CHECK: stablehlo.dot_general %arg0, %arg1, {{.*}} (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
