// RUN: shield-reductions
// Sums of rows, added up for all pairs of rows: computed twice, and read behind an elementwise op.
func.func @main(%x: tensor<4x3xf32>) -> tensor<4x4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
  %t = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
  %u = stablehlo.sqrt %t : tensor<4xf32>
  %a = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %b = stablehlo.broadcast_in_dim %u, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %y = stablehlo.add %a, %b : tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}
// CHECK: changed: shield-reductions
// CHECK: %[[S:.*]] = stablehlo.reduce
// CHECK-NEXT: %[[A:.*]] = stablehlo.optimization_barrier %[[S]]
// CHECK: %[[T:.*]] = stablehlo.reduce
// CHECK-NEXT: %[[B:.*]] = stablehlo.optimization_barrier %[[T]]
// CHECK: stablehlo.sqrt %[[B]]
// CHECK: stablehlo.broadcast_in_dim %[[A]], dims = [0]
