// RUN: kernel-integer-rows
// KERNELS: avx2
// No kernel: two ops alone, what is computed with floats, a sum along another axis than the
// last, and one number for all elements of a row.
func.func @main(%x: tensor<4x40xi8>, %f: tensor<4x40xf32>) -> (tensor<4x40xi8>, tensor<4x40xi8>, tensor<40xi8>, tensor<4x40xi8>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %c = stablehlo.constant dense<77> : tensor<4x40xi8>
  %0 = stablehlo.xor %x, %c : tensor<4x40xi8>
  %1 = stablehlo.round_nearest_even %f : tensor<4x40xf32>
  %2 = stablehlo.convert %1 : (tensor<4x40xf32>) -> tensor<4x40xi8>
  %3 = stablehlo.convert %x : (tensor<4x40xi8>) -> tensor<4x40xi32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4x40xi32>, tensor<i32>) -> tensor<40xi32>
  %5 = stablehlo.convert %4 : (tensor<40xi32>) -> tensor<40xi8>
  %6 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x40xi32>, tensor<i32>) -> tensor<4xi32>
  %7 = stablehlo.broadcast_in_dim %6, dims = [0] : (tensor<4xi32>) -> tensor<4x40xi32>
  %8 = stablehlo.negate %7 : tensor<4x40xi32>
  %9 = stablehlo.abs %8 : tensor<4x40xi32>
  %10 = stablehlo.convert %9 : (tensor<4x40xi32>) -> tensor<4x40xi8>
  return %0, %2, %5, %10 : tensor<4x40xi8>, tensor<4x40xi8>, tensor<40xi8>, tensor<4x40xi8>
}
// CHECK: changed: none
// CHECK-NOT: call
