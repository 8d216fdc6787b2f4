// RUN: move-transposes
// Scores come out of a product in another order, and the next product reads them so: kernels of
// attention look for them like that.
func.func @main(%q: tensor<2x4x6x8xf32>, %k: tensor<2x4x6x8xf32>, %v: tensor<2x4x6x8xf32>) -> tensor<2x4x8x6xf32> {
  %0 = stablehlo.dot_general %k, %q, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : (tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x6x6xf32>
  %1 = stablehlo.transpose %0, dims = [0, 1, 3, 2] : (tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
  %2 = stablehlo.exponential %1 : tensor<2x4x6x6xf32>
  %3 = stablehlo.transpose %2, dims = [0, 1, 3, 2] : (tensor<2x4x6x6xf32>) -> tensor<2x4x6x6xf32>
  %4 = stablehlo.dot_general %v, %3, batching_dims = [0, 1] x [0, 1], contracting_dims = [2] x [2] : (tensor<2x4x6x8xf32>, tensor<2x4x6x6xf32>) -> tensor<2x4x8x6xf32>
  return %4 : tensor<2x4x8x6xf32>
}
// CHECK: changed: none
