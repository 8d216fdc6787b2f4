// RUN: shield-booleans
// Numbers that are converted, and truth values that a sum reads.
func.func @main(%x: tensor<9x17xi8>, %b: tensor<9x17xi1>, %w: tensor<17x5xf32>) -> (tensor<9x5xf32>, tensor<9x17xf32>) {
  %0 = stablehlo.convert %x : (tensor<9x17xi8>) -> tensor<9x17xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<9x17xf32>, tensor<17x5xf32>) -> tensor<9x5xf32>
  %2 = stablehlo.convert %b : (tensor<9x17xi1>) -> tensor<9x17xf32>
  %3 = stablehlo.add %0, %2 : tensor<9x17xf32>
  return %1, %3 : tensor<9x5xf32>, tensor<9x17xf32>
}
// CHECK: changed: none
