// RUN: plain-booleans
// Numbers that are converted, and truth values that stay such.
func.func @main(%x: tensor<9x17xi8>, %b: tensor<9x17xi1>) -> (tensor<9x17xf32>, tensor<9x17xi1>) {
  %0 = stablehlo.convert %x : (tensor<9x17xi8>) -> tensor<9x17xf32>
  %1 = stablehlo.convert %b : (tensor<9x17xi1>) -> tensor<9x17xi1>
  return %0, %1 : tensor<9x17xf32>, tensor<9x17xi1>
}
// CHECK: changed: none
