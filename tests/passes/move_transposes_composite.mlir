// RUN: move-transposes
func.func private @erf(%x: tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32> {
  %0 = stablehlo.tanh %x : tensor<2x8x4x6xf32>
  return %0 : tensor<2x8x4x6xf32>
}
func.func @main(%x: tensor<2x4x6x8xf32>) -> tensor<2x4x6x8xf32> {
  %0 = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<2x4x6x8xf32>) -> tensor<2x8x4x6xf32>
  %1 = stablehlo.composite "chlo.erf" %0 {decomposition = @erf, version = 1 : i32} : (tensor<2x8x4x6xf32>) -> tensor<2x8x4x6xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<2x8x4x6xf32>
  %3 = stablehlo.transpose %2, dims = [0, 2, 3, 1] : (tensor<2x8x4x6xf32>) -> tensor<2x4x6x8xf32>
  return %3 : tensor<2x4x6x8xf32>
}
// What defines a composite has a shape, so its operand has that one, however it is stored.
// CHECK: changed: move-transposes
// CHECK: @main
// CHECK-NOT: stablehlo.transpose
// CHECK: [[R:%[0-9]+]] = stablehlo.reshape %arg0
// CHECK: [[E:%[0-9]+]] = stablehlo.composite "chlo.erf" [[R]]
// CHECK: [[S:%[0-9]+]] = stablehlo.reshape [[E]]
// CHECK: stablehlo.multiply %arg0, [[S]]
