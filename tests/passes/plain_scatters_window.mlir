// RUN: plain-scatters
// One window is a slice that is read, changed and written.
func.func @main(%x: tensor<8x3xf32>, %i: tensor<1xi32>, %u: tensor<2xf32>) -> tensor<8x3xf32> {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
    index_vector_dim = 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8x3xf32>, tensor<1xi32>, tensor<2xf32>) -> tensor<8x3xf32>
  return %y : tensor<8x3xf32>
}
// CHECK: changed: plain-scatters
// CHECK-NOT: stablehlo.scatter
// CHECK: [[OLD:%[0-9]+]] = stablehlo.dynamic_slice %arg0
// CHECK: [[SUM:%[0-9]+]] = "stablehlo.map"([[OLD]], 
// CHECK: [[NEW:%[0-9]+]] = stablehlo.select {{.*}}, [[SUM]], [[OLD]]
// CHECK: stablehlo.dynamic_update_slice %arg0, [[NEW]]
