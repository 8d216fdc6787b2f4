// RUN: expand-fake-quant, lower-regions
// SETTINGS: placement=early
// Codes that change their parameters: one rescale in integers. Others read the dequantize still.
func.func private @fq(%x: tensor<4x8xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %k = stablehlo.constant dense<2.0> : tensor<1x1xf32>
  %0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x8xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.composite "jq.fake_quant" %0, %l, %k {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x8xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}
// CHECK: changed: expand-fake-quant, lower-regions
// CHECK: %[[Q:.*]] = stablehlo.composite "jq.quantize" %arg0
// CHECK: stablehlo.composite "jq.dequantize" %[[Q]]
// CHECK: stablehlo.composite "jq.integer" %[[Q]] {{.*}}kind = "rescale"
// CHECK-NOT: "jq.quantize"
// CHECK: func.func private @jq.integer
// CHECK: stablehlo.convert %arg0 : (tensor<4x8xi8>) -> tensor<4x8xi32>
// CHECK: stablehlo.shift_left
// CHECK: stablehlo.shift_right_arithmetic
// CHECK: stablehlo.convert {{.*}} : (tensor<4x8xi32>) -> tensor<4x8xi8>
