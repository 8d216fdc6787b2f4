// RUN: fold-scales
// Another op reads the product, or the weight; or the factor is no constant of its channels.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x3xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}, %v: tensor<8x3xf32> {jq.weight = "v"},
                %u: tensor<8x3xf32> {jq.weight = "u"}, %g: tensor<3xf32> {jq.weight = "gamma"})
    -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<8x3xf32>, tensor<4x3xf32>) {
  %g0 = stablehlo.broadcast_in_dim %g, dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.multiply %0, %g0 : tensor<4x3xf32>
  %2 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %3 = stablehlo.multiply %2, %g0 : tensor<4x3xf32>
  %4 = stablehlo.dot_general %x, %u, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  %5 = stablehlo.multiply %4, %y : tensor<4x3xf32>
  return %0, %1, %3, %v, %5 : tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<8x3xf32>, tensor<4x3xf32>
}
// CHECK: changed: none
// CHECK: multiply
// CHECK: multiply
// CHECK: multiply
