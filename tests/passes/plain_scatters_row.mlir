// RUN: plain-scatters
// What is outside goes to one more row, which is cut off.
func.func @main(%x: tensor<8x3xf32>, %i: tensor<4x1xi32>, %u: tensor<4x3xf32>) -> tensor<8x3xf32> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<8x3xf32>, tensor<4x1xi32>, tensor<4x3xf32>) -> tensor<8x3xf32>
  return %y : tensor<8x3xf32>
}
// CHECK: changed: plain-scatters
// CHECK: stablehlo.pad %arg0
// CHECK: "stablehlo.scatter"({{.*}}unique_indices = false
// CHECK: (tensor<9x3xf32>, tensor<4x1xi32>, tensor<4x3xf32>) -> tensor<9x3xf32>
// CHECK: stablehlo.slice {{.*}} [0:8, 0:3]
