// RUN: clamp-indices
func.func @main(%t: tensor<7x2xf32>, %i: tensor<3x1xui32>) -> tensor<3x2xf32> {
  %y = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 2>}> : (tensor<7x2xf32>, tensor<3x1xui32>) -> tensor<3x2xf32>
  return %y : tensor<3x2xf32>
}
// CHECK: [[I:%[0-9]+]] = stablehlo.convert %arg1 : (tensor<3x1xui32>) -> tensor<3x1xi64>
// CHECK: stablehlo.maximum [[I]]
// CHECK: [[B:%[0-9]+]] = stablehlo.minimum
// CHECK-NEXT: "stablehlo.gather"(%arg0, [[B]])
