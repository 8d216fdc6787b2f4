// RUN: plain-scatters
// One position of each sequence: rows of a matrix. The clamp proves that all of them exist.
func.func @main(%x: tensor<4x8x2x3xf32>, %p: tensor<4x1xi32>, %u: tensor<4x1x2x3xf32>)
    -> tensor<4x8x2x3xf32> {
  %low = stablehlo.constant dense<0> : tensor<4x1xi32>
  %high = stablehlo.constant dense<7> : tensor<4x1xi32>
  %i = stablehlo.clamp %low, %p, %high : tensor<4x1xi32>
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1, 2, 3], input_batching_dims = [0], scatter_indices_batching_dims = [0],
    scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<4x8x2x3xf32>, tensor<4x1xi32>, tensor<4x1x2x3xf32>) -> tensor<4x8x2x3xf32>
  return %y : tensor<4x8x2x3xf32>
}
// CHECK: changed: plain-scatters
// CHECK-NOT: stablehlo.pad
// CHECK: "stablehlo.scatter"({{.*}}inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true
// CHECK: (tensor<32x6xf32>, tensor<4x1xi32>, tensor<4x6xf32>) -> tensor<32x6xf32>
