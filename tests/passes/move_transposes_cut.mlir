// RUN: move-transposes
// The part that is transposed back is on the other side of the narrowest place: int8, not float.
func.func @main(%x: tensor<4x6x8xf32>) -> (tensor<8x4x6xi8>, tensor<4x8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<4x6x8xf32>) -> tensor<8x4x6xf32>
  %1 = stablehlo.negate %0 : tensor<8x4x6xf32>
  %2 = stablehlo.convert %1 : (tensor<8x4x6xf32>) -> tensor<8x4x6xi8>
  %3 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<8x4x6xf32>, tensor<f32>) -> tensor<8x4xf32>
  %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  return %2, %4 : tensor<8x4x6xi8>, tensor<4x8xf32>
}
// CHECK: changed: move-transposes
// CHECK: %[[N:.*]] = stablehlo.negate %arg0
// CHECK: %[[I:.*]] = stablehlo.convert %[[N]]
// CHECK: %[[T:.*]] = stablehlo.transpose %[[I]], dims = [2, 0, 1]
// CHECK: %[[R:.*]] = stablehlo.reduce(%[[N]]{{.*}}across dimensions = [1]
// CHECK: return %[[T]], %[[R]]
