// RUN: plain-booleans
// Numbers that are converted, truth values that stay such, and types that programs compute nothing in.
func.func @main(%x: tensor<9x17xi8>, %b: tensor<9x17xi1>) -> (tensor<9x17xf32>, tensor<9x17xi1>, tensor<9x17xcomplex<f32>>, tensor<9x17xf8E4M3FN>) {
  %0 = stablehlo.convert %x : (tensor<9x17xi8>) -> tensor<9x17xf32>
  %1 = stablehlo.convert %b : (tensor<9x17xi1>) -> tensor<9x17xi1>
  %2 = stablehlo.convert %b : (tensor<9x17xi1>) -> tensor<9x17xcomplex<f32>>
  %3 = stablehlo.convert %b : (tensor<9x17xi1>) -> tensor<9x17xf8E4M3FN>
  return %0, %1, %2, %3 : tensor<9x17xf32>, tensor<9x17xi1>, tensor<9x17xcomplex<f32>>, tensor<9x17xf8E4M3FN>
}
// CHECK: changed: none
