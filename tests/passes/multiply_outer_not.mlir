// RUN: multiply-outer
// A product that sums; one that does not widen.
func.func @main(%x: tensor<5x2xi8>, %w: tensor<2x8xi8>, %f: tensor<5x1xf32>, %g: tensor<1x8xf32>)
    -> (tensor<5x8xi32>, tensor<5x8xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<5x2xi8>, tensor<2x8xi8>) -> tensor<5x8xi32>
  %1 = stablehlo.dot_general %f, %g, contracting_dims = [1] x [0]
       : (tensor<5x1xf32>, tensor<1x8xf32>) -> tensor<5x8xf32>
  return %0, %1 : tensor<5x8xi32>, tensor<5x8xf32>
}
// CHECK: changed: none
