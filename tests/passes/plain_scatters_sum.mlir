// RUN: plain-scatters
// What is outside adds nothing: no row is needed for it.
func.func @main(%x: tensor<8x3xf32>, %i: tensor<4x1xi32>, %u: tensor<4x3xf32>) -> tensor<8x3xf32> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8x3xf32>, tensor<4x1xi32>, tensor<4x3xf32>) -> tensor<8x3xf32>
  return %y : tensor<8x3xf32>
}
// CHECK: changed: plain-scatters
// CHECK: stablehlo.constant dense<-0.000000e+00>
// CHECK-NOT: stablehlo.pad
// CHECK: stablehlo.select
// CHECK: (tensor<8x3xf32>, tensor<4x1xi32>, tensor<4x3xf32>) -> tensor<8x3xf32>
// CHECK-NOT: stablehlo.slice
