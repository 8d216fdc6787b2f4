// RUN: kernel-integer-rows
// KERNELS: avx2
// A softmax-like row: a sum with a mask of each sample, a table, and what the row sums to. What is
// broadcast is read as it lies; numbers of a layer are an operand, powers of two are not.
func.func @main(%x: tensor<2x3x4x40xi8>, %mask: tensor<2x1x1x40xi16>) -> tensor<2x3x4x40xi8> {
  %table = stablehlo.constant dense<[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]> : tensor<20xi32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %seven = stablehlo.constant dense<77> : tensor<2x3x4x40xi32>
  %four = stablehlo.constant dense<4> : tensor<2x3x4x40xi32>
  %0 = stablehlo.convert %x : (tensor<2x3x4x40xi8>) -> tensor<2x3x4x40xi32>
  %1 = stablehlo.broadcast_in_dim %mask, dims = [0, 1, 2, 3] : (tensor<2x1x1x40xi16>) -> tensor<2x3x4x40xi16>
  %2 = stablehlo.convert %1 : (tensor<2x3x4x40xi16>) -> tensor<2x3x4x40xi32>
  %3 = stablehlo.add %0, %2 : tensor<2x3x4x40xi32>
  %4 = "stablehlo.gather"(%table, %3) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 4>, slice_sizes = array<i64: 1>}> : (tensor<20xi32>, tensor<2x3x4x40xi32>) -> tensor<2x3x4x40xi32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [3] : (tensor<2x3x4x40xi32>, tensor<i32>) -> tensor<2x3x4xi32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<2x3x4xi32>) -> tensor<2x3x4x40xi32>
  %7 = stablehlo.multiply %4, %seven : tensor<2x3x4x40xi32>
  %8 = stablehlo.divide %7, %6 : tensor<2x3x4x40xi32>
  %9 = stablehlo.shift_right_arithmetic %8, %four : tensor<2x3x4x40xi32>
  %10 = stablehlo.convert %9 : (tensor<2x3x4x40xi32>) -> tensor<2x3x4x40xi8>
  return %10 : tensor<2x3x4x40xi8>
}
// CHECK: changed: kernel-integer-rows
// CHECK: stablehlo.constant dense<77> : tensor<1x1xi64>
// CHECK: call @jq_row_program_24x40_{{.*}} : ({{.*}}tensor<1x20xi32>{{.*}}tensor<1x1xi64>) -> tensor<24x40xi8>
// CHECK-NOT: stablehlo.multiply
// CHECK: func.func private @jq_row_program
// CHECK-SAME: every\22: 12, \22rows\22: 2
