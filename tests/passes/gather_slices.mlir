// RUN: gather-slices
// Of an input or a weight any number of rows, of anything else a single one.
func.func @main(%x: tensor<4x3x8xf32>, %p: tensor<i32>, %q: tensor<i64>,
                %w: tensor<9x8xf32> {jq.weight = "w"})
    -> (tensor<2x8xf32>, tensor<4x1x8xf32>, tensor<4x1x8xf32>) {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %d = stablehlo.constant dense<0> : tensor<i64>
  %0 = stablehlo.dynamic_slice %w, %p, %c, sizes = [2, 8] : (tensor<9x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  %1 = stablehlo.dynamic_slice %x, %d, %q, %d, sizes = [4, 1, 8] : (tensor<4x3x8xf32>, tensor<i64>, tensor<i64>, tensor<i64>) -> tensor<4x1x8xf32>
  %2 = stablehlo.negate %x : tensor<4x3x8xf32>
  %3 = stablehlo.dynamic_slice %2, %c, %p, %c, sizes = [4, 1, 8] : (tensor<4x3x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x1x8xf32>
  return %0, %1, %3 : tensor<2x8xf32>, tensor<4x1x8xf32>, tensor<4x1x8xf32>
}
// CHECK: changed: gather-slices
// CHECK-NOT: dynamic_slice
// CHECK: [[MOST:%.*]] = stablehlo.constant dense<7> : tensor<i32>
// CHECK: stablehlo.minimum {{.*}}, [[MOST]]
// CHECK: stablehlo.constant dense<{{\[\[0\], \[1\]\]}}> : tensor<2x1xi32>
// CHECK: "stablehlo.gather"(%arg3, {{.*}}offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>{{.*}}slice_sizes = array<i64: 1, 8>
// CHECK: "stablehlo.gather"(%arg0, {{.*}}offset_dims = [0, 2], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>{{.*}}slice_sizes = array<i64: 4, 1, 8>
// CHECK: "stablehlo.gather"
// CHECK-NOT: dynamic_slice
