// RUN: sum-products
// Nine rows; an operand whose batch leads already; small ones; other types.
func.func @main(%nine: tensor<4x9x32xf32>, %q: tensor<4x1x32xf32>, %keys: tensor<64x4x32xf32>,
    %lead: tensor<4x64x32xf32>, %few: tensor<2x4x32xf32>, %h: tensor<4x1x32xf16>,
    %half: tensor<64x4x32xf16>)
    -> (tensor<4x9x64xf32>, tensor<4x1x64xf32>, tensor<4x1x2xf32>, tensor<4x1x64xf32>) {
  %0 = stablehlo.dot_general %nine, %keys, batching_dims = [0] x [1], contracting_dims = [2] x [2]
    : (tensor<4x9x32xf32>, tensor<64x4x32xf32>) -> tensor<4x9x64xf32>
  %1 = stablehlo.dot_general %q, %lead, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<4x1x32xf32>, tensor<4x64x32xf32>) -> tensor<4x1x64xf32>
  %2 = stablehlo.dot_general %q, %few, batching_dims = [0] x [1], contracting_dims = [2] x [2]
    : (tensor<4x1x32xf32>, tensor<2x4x32xf32>) -> tensor<4x1x2xf32>
  %3 = stablehlo.dot_general %h, %half, batching_dims = [0] x [1], contracting_dims = [2] x [2]
    : (tensor<4x1x32xf16>, tensor<64x4x32xf16>) -> tensor<4x1x64xf32>
  return %0, %1, %2, %3
    : tensor<4x9x64xf32>, tensor<4x1x64xf32>, tensor<4x1x2xf32>, tensor<4x1x64xf32>
}
// CHECK: changed: none
