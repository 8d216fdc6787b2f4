// RUN: place-activations, expand-fake-quant, fold-quantize
// SETTINGS: activations.format=int8 activations.scheme=symmetric activations.mode=static activations.granularity=per-tensor weights.format=float activation_products=int8
// RANGES: head:0=-1,1
// RANGES: head:1=-2,2
// Equal parameters: nothing is left to do.
func.func private @fq(%x: tensor<4x8xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "symmetric"}, decomposition = @fq} : (tensor<4x8xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.dot_general %0, %y, contracting_dims = [1] x [0] {jq.name = "head"}
       : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
// CHECK: changed: place-activations, expand-fake-quant, fold-quantize
// CHECK: %[[Q:.*]] = stablehlo.composite "jq.quantize" %arg0
// CHECK: %[[D:.*]] = stablehlo.composite "jq.dequantize" %[[Q]]
// CHECK-NOT: "jq.quantize" %[[D]]
// CHECK: stablehlo.dot_general %[[D]]
