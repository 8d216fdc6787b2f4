// RUN: shield-booleans
func.func @main(%b: tensor<17x9xi1>, %w: tensor<17x5xf32>) -> tensor<9x5xf32> {
  %0 = stablehlo.convert %b : (tensor<17x9xi1>) -> tensor<17x9xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<17x9xf32>) -> tensor<9x17xf32>
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0] : (tensor<9x17xf32>, tensor<17x5xf32>) -> tensor<9x5xf32>
  return %2 : tensor<9x5xf32>
}
// CHECK: changed: shield-booleans
// CHECK: %[[T:.*]] = stablehlo.transpose
// CHECK: %[[B:.*]] = stablehlo.optimization_barrier %[[T]]
// CHECK: dot_general %[[B]], %arg1
