// RUN: expand-fake-quant, lower-regions
// SETTINGS: placement=early
// Sorting has no integer form, and what was no codes stays float.
func.func private @fq(%x: tensor<4x4xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x4xf32> {
  return %x : tensor<4x4xf32>
}
func.func @main(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %x0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %1 = "stablehlo.sort"(%x0) <{dimension = 1 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = stablehlo.composite "jq.fake_quant" %1, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %3 = stablehlo.tanh %y : tensor<4x4xf32>
  %4 = stablehlo.composite "jq.fake_quant" %3, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  return %2, %4 : tensor<4x4xf32>, tensor<4x4xf32>
}
// CHECK: changed: expand-fake-quant
// CHECK-NOT: lower-regions
// CHECK: "stablehlo.sort"
// CHECK: %[[S:.*]] = stablehlo.tanh %arg1
// CHECK: stablehlo.composite "jq.quantize" %[[S]]
