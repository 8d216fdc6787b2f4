// RUN: expand-fake-quant, lower-markers
// Markers become the arithmetic of their decompositions.
func.func private @fq(%x: tensor<4x4xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x4xf32> {
  return %x : tensor<4x4xf32>
}
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
// CHECK: changed: expand-fake-quant, lower-markers
// CHECK: @main
// CHECK-NOT: composite
// CHECK: %[[S:.*]] = stablehlo.divide %arg0
// CHECK: stablehlo.round_nearest_even
// CHECK: %[[Q:.*]] = stablehlo.convert {{.*}} : (tensor<4x4xi32>) -> tensor<4x4xi8>
// CHECK: stablehlo.convert %[[Q]] : (tensor<4x4xi8>) -> tensor<4x4xi32>
// CHECK: stablehlo.multiply {{.*}} : tensor<4x4xf32>
// CHECK-NEXT: return
