// RUN: place-activations
// SETTINGS: weights.format=int8 activations.format=int8
func.func @main(%p: tensor<i1>, %x: tensor<4x8xf32>, %v: tensor<8x3xf32> {jq.weight = "v"},
                %w: tensor<8x3xf32> {jq.weight = "w"}) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %0 = "stablehlo.if"(%p) ({
    %2 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
         : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
    stablehlo.return %2 : tensor<4x3xf32>
  }, {
    %2 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
         : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
    stablehlo.return %2 : tensor<4x3xf32>
  }) : (tensor<i1>) -> tensor<4x3xf32>
  %1 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %0, %1 : tensor<4x3xf32>, tensor<4x3xf32>
}
// What one branch has quantized, the other branch and the ops behind both cannot read.
// CHECK: changed: place-activations
// CHECK: stablehlo.if
// CHECK: stablehlo.composite "jq.quantize_dynamic" %arg1
// CHECK: dot_general %{{[0-9]+}}, %arg2
// CHECK: }, {
// CHECK: stablehlo.composite "jq.quantize_dynamic" %arg1
// CHECK: dot_general %{{[0-9]+}}, %arg3
// CHECK: stablehlo.composite "jq.quantize_dynamic" %arg1
// CHECK: dot_general %{{[0-9]+}}, %arg2
