// RUN: place-weights, place-activations, lower-contractions, kernel-gemm, kernel-quantize, kernel-views, kernel-hidden-rows
// SETTINGS: weights.format=int8 activations.format=int8
// KERNELS: avx512_vnni
// Rows are a result; the mask is not one number a row; a function comes between; the mask is constant.
func.func @main(%x: tensor<2x40x8xf32>, %mask: tensor<2x40xf32>, %wide: tensor<2x40x32xf32>,
                %w: tensor<8x32xf32> {jq.weight = "w"}, %v: tensor<8x32xf32> {jq.weight = "v"})
    -> (tensor<2x40x32xf32>, tensor<2x40x32xf32>, tensor<2x40x32xf32>, tensor<2x40x32xf32>, tensor<2x40x32xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
       : (tensor<2x40x8xf32>, tensor<8x32xf32>) -> tensor<2x40x32xf32>
  %1 = stablehlo.broadcast_in_dim %mask, dims = [0, 1] : (tensor<2x40xf32>) -> tensor<2x40x32xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<2x40x32xf32>
  %3 = stablehlo.multiply %0, %wide : tensor<2x40x32xf32>
  %4 = stablehlo.dot_general %x, %v, contracting_dims = [2] x [0]
       : (tensor<2x40x8xf32>, tensor<8x32xf32>) -> tensor<2x40x32xf32>
  %5 = stablehlo.log %4 : tensor<2x40x32xf32>
  %6 = stablehlo.multiply %5, %1 : tensor<2x40x32xf32>
  %c = stablehlo.constant dense<0.0> : tensor<2x40xf32>
  %7 = stablehlo.broadcast_in_dim %c, dims = [0, 1] : (tensor<2x40xf32>) -> tensor<2x40x32xf32>
  %8 = stablehlo.multiply %4, %7 : tensor<2x40x32xf32>
  return %0, %2, %3, %6, %8 : tensor<2x40x32xf32>, tensor<2x40x32xf32>, tensor<2x40x32xf32>, tensor<2x40x32xf32>, tensor<2x40x32xf32>
}
// CHECK-NOT: kernel-hidden-rows
// CHECK-NOT: tensor<2xi32>
// CHECK-NOT: sequences\22: {
// CHECK-NOT: kind\22: \22sequences
