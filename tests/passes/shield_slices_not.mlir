// RUN: shield-slices
// Rows of a table that is cut, a slice along another axis, and a reversal of a sum of channels.
func.func @main(%t: tensor<9x10xf32>, %x: tensor<9x10x2xf32>, %i: tensor<3x1xi32>)
    -> (tensor<3x4xf32>, tensor<3x10x2xf32>, tensor<9x10xf32>) {
  %0 = stablehlo.slice %t [0:9, 0:4] : (tensor<9x10xf32>) -> tensor<9x4xf32>
  %1 = "stablehlo.gather"(%0, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 4>}> : (tensor<9x4xf32>, tensor<3x1xi32>) -> tensor<3x4xf32>
  %2 = stablehlo.slice %x [2:9, 0:10, 0:2] : (tensor<9x10x2xf32>) -> tensor<7x10x2xf32>
  %3 = "stablehlo.gather"(%2, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 10, 2>}>
    : (tensor<7x10x2xf32>, tensor<3x1xi32>) -> tensor<3x10x2xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %4 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [2]
    : (tensor<9x10x2xf32>, tensor<f32>) -> tensor<9x10xf32>
  %5 = stablehlo.reverse %4, dims = [0] : tensor<9x10xf32>
  return %1, %3, %5 : tensor<3x4xf32>, tensor<3x10x2xf32>, tensor<9x10xf32>
}
// CHECK: changed: none
