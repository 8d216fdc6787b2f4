// RUN: kernel-chain
// KERNELS: avx2
func.func @main(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %c: tensor<1x4xf32>, %s: tensor<1x4xf32>) -> tensor<1x1x32xf32> {
  %0 = call @jq_normalize(%x, %g) {jq.name = "first"} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.reshape %0 : (tensor<4x8xf32>) -> tensor<1x1x4x8xf32>
  %2 = stablehlo.broadcast_in_dim %c, dims = [0, 3] : (tensor<1x4xf32>) -> tensor<1x1x4x4xf32>
  %3 = stablehlo.broadcast_in_dim %s, dims = [1, 3] : (tensor<1x4xf32>) -> tensor<1x1x4x4xf32>
  %low = stablehlo.slice %1 [0:1, 0:1, 0:4, 0:4] : (tensor<1x1x4x8xf32>) -> tensor<1x1x4x4xf32>
  %high = stablehlo.slice %1 [0:1, 0:1, 0:4, 4:8] : (tensor<1x1x4x8xf32>) -> tensor<1x1x4x4xf32>
  %6 = stablehlo.multiply %low, %2 : tensor<1x1x4x4xf32>
  %7 = stablehlo.multiply %high, %3 : tensor<1x1x4x4xf32>
  %8 = stablehlo.multiply %2, %high : tensor<1x1x4x4xf32>
  %9 = stablehlo.multiply %low, %3 : tensor<1x1x4x4xf32>
  %10 = stablehlo.subtract %6, %7 : tensor<1x1x4x4xf32>
  %11 = stablehlo.add %8, %9 : tensor<1x1x4x4xf32>
  %12 = stablehlo.concatenate %10, %11, dim = 3 : (tensor<1x1x4x4xf32>, tensor<1x1x4x4xf32>) -> tensor<1x1x4x8xf32>
  %13 = stablehlo.reshape %12 : (tensor<1x1x4x8xf32>) -> tensor<1x1x32xf32>
  return %13 : tensor<1x1x32xf32>
}
func.func private @jq_normalize(tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> attributes {jq.kernel = "{\"beta\": false, \"center\": false, \"epsilon\": 1e-05, \"factors\": false, \"gamma\": true, \"isa\": \"avx2\", \"k\": 8, \"keep\": true, \"kernel\": \"normalize\", \"m\": 4, \"scheme\": null, \"sequences\": null}"}
// CHECK: changed: kernel-chain
// CHECK: call @jq_row_chain_4x8_{{[0-9a-f]+}}(%arg0, %arg1, %arg2, %arg3) {jq.name = "first"}
// CHECK-SAME: (tensor<4x8xf32>, tensor<8xf32>, tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<4x8xf32>
// CHECK-NOT: stablehlo.multiply
// CHECK-NOT: call @
// CHECK: return
// CHECK: rotated
