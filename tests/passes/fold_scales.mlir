// RUN: fold-scales
// A batch norm: its factor goes into the weight, what it adds becomes one constant.
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}, %m: tensor<3xf32> {jq.weight = "mean"},
                %g: tensor<3xf32> {jq.weight = "gamma"}, %b: tensor<3xf32> {jq.weight = "beta"}) -> tensor<4x3xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<4x3xf32>
  %3 = stablehlo.broadcast_in_dim %g, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
  %4 = stablehlo.multiply %2, %3 : tensor<4x3xf32>
  %5 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
  %6 = stablehlo.add %4, %5 : tensor<4x3xf32>
  return %6 : tensor<4x3xf32>
}
// CHECK: changed: fold-scales
// CHECK: @main(%arg0: tensor<4x8xf32>, %arg1: tensor<8x3xf32> {jq.weight = "w"}, %arg2: tensor<3xf32> {jq.weight = "w:bias"})
// CHECK-NEXT: %[[Y:.*]] = stablehlo.dot_general %arg0, %arg1
// CHECK-NEXT: %[[B:.*]] = stablehlo.broadcast_in_dim %arg2, dims = [1]
// CHECK-NEXT: %[[R:.*]] = stablehlo.add %[[Y]], %[[B]]
// CHECK-NEXT: return %[[R]]
