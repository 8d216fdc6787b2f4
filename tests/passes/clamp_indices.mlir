// RUN: clamp-indices
func.func @main(%t: tensor<7x2xf32>, %i: tensor<3x1xi32>) -> tensor<3x2xf32> {
  %y = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 2>}> : (tensor<7x2xf32>, tensor<3x1xi32>) -> tensor<3x2xf32>
  return %y : tensor<3x2xf32>
}
// CHECK: [[MAX:%c[_0-9]*]] = stablehlo.constant dense<6> : tensor<1xi32>
// CHECK: [[HIGH:%[0-9]+]] = stablehlo.broadcast_in_dim [[MAX]]
// CHECK: [[LOW:%[0-9]+]] = stablehlo.broadcast_in_dim
// CHECK-NEXT: [[A:%[0-9]+]] = stablehlo.maximum %arg1, [[LOW]]
// CHECK-NEXT: [[B:%[0-9]+]] = stablehlo.minimum [[A]], [[HIGH]]
// CHECK-NEXT: "stablehlo.gather"(%arg0, [[B]])
