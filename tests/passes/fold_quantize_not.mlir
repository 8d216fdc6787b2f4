// RUN: expand-fake-quant, fold-quantize
// Not with parameters that the data give, nor with one a channel that differ.
func.func private @own(%x: tensor<4x8xf32>) -> tensor<4x8xf32> { return %x : tensor<4x8xf32> }
func.func private @fq(%x: tensor<4x8xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
func.func private @rows(%x: tensor<4x8xf32>, %l: tensor<4x1xf32>, %h: tensor<4x1xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %low = stablehlo.constant dense<-1.0> : tensor<4x1xf32>
  %high = stablehlo.constant dense<2.0> : tensor<4x1xf32>
  %0 = stablehlo.composite "jq.fake_quant" %x {composite_attributes = {block = "0,0", format = "int8", scheme = "symmetric"}, decomposition = @own} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.composite "jq.fake_quant" %0, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "symmetric"}, decomposition = @fq} : (tensor<4x8xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x8xf32>
  %2 = stablehlo.composite "jq.fake_quant" %y, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "symmetric"}, decomposition = @fq} : (tensor<4x8xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x8xf32>
  %3 = stablehlo.composite "jq.fake_quant" %2, %low, %high {composite_attributes = {block = "1,0", format = "int8", scheme = "symmetric"}, decomposition = @rows} : (tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  return %1, %3 : tensor<4x8xf32>, tensor<4x8xf32>
}
// CHECK: changed: expand-fake-quant
// CHECK-NOT: fold-quantize
// CHECK-COUNT-3: "jq.quantize" %
