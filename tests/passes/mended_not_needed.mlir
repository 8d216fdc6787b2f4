// RUN: saturate-converts, clamp-indices, shield-unsigned, widen-depthwise, order-broadcasts, plain-windows
// Nothing here needs any of them.
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32>, %i: tensor<4xi8>) -> (tensor<4x3xf32>, tensor<4xi32>) {
  %b = stablehlo.convert %i : (tensor<4xi8>) -> tensor<4xi32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1, %b : tensor<4x3xf32>, tensor<4xi32>
}
// CHECK: changed: none
