// RUN: expand-fake-quant, lower-regions
// SETTINGS: placement=early
// Of 65,536 codes every 256th stands in the table; what lies between is interpolated.
func.func private @fq(%x: tensor<4x4xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x4xf32> {
  return %x : tensor<4x4xf32>
}
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %x0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int16", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %2 = stablehlo.tanh %x0 : tensor<4x4xf32>
  %3 = stablehlo.composite "jq.fake_quant" %2, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}
// CHECK: changed: expand-fake-quant, lower-regions
// CHECK: %[[Q:.*]] = stablehlo.composite "jq.quantize" %arg0, {{.*}} -> tensor<4x4xi16>
// CHECK: stablehlo.composite "jq.integer" %[[Q]] {{.*}}kind = "table"
// CHECK-NOT: stablehlo.tanh %
// CHECK: return
// CHECK: func.func private @jq.integer
// CHECK: %[[T:.*]] = stablehlo.constant {{.*}} : tensor<257xi32>
// CHECK: stablehlo.convert %arg0 : (tensor<4x4xi16>) -> tensor<4x4xi32>
// CHECK: "stablehlo.gather"(%[[T]]
// CHECK: "stablehlo.gather"(
