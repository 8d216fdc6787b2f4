// RUN: expand-fake-quant, fold-quantize
// Not with other parameters: in float they are rounded once.
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
// CHECK: changed: expand-fake-quant
// CHECK-NOT: fold-quantize
// CHECK-COUNT-2: "jq.quantize" %
