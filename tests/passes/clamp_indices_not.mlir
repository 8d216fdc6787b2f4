// RUN: clamp-indices
// The remainder of eight and positions along an axis cannot leave the table, also behind a barrier.
func.func @main(%t: tensor<8x5x2xf32>, %p: tensor<5xi32>) -> tensor<5x2xf32> {
  %seven = stablehlo.constant dense<7> : tensor<5xi32>
  %row = stablehlo.and %p, %seven : tensor<5xi32>
  %first = stablehlo.reshape %row : (tensor<5xi32>) -> tensor<5x1xi32>
  %second = stablehlo.iota dim = 0 : tensor<5x1xi32>
  %i = stablehlo.concatenate %first, %second, dim = 1
    : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x2xi32>
  %b = stablehlo.optimization_barrier %i : tensor<5x2xi32>
  %y = "stablehlo.gather"(%t, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 1, 2>}> : (tensor<8x5x2xf32>, tensor<5x2xi32>) -> tensor<5x2xf32>
  return %y : tensor<5x2xf32>
}
// CHECK: changed: none
