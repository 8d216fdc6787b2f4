// RUN: expand-fake-quant, lower-regions
// SETTINGS: placement=early
// A product with its bias and its relu: one accumulator, one rescale, a clamp from the zero point on.
func.func private @fq(%x: tensor<4x4xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x4xf32> {
  return %x : tensor<4x4xf32>
}
func.func private @fw(%x: tensor<4x4xf32>) -> tensor<4x4xf32> { return %x : tensor<4x4xf32> }
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32> {jq.weight = "w"}) -> tensor<4x4xf32> {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<4x4xf32>
  %b = stablehlo.constant dense<0.5> : tensor<4x4xf32>
  %x0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %w0 = stablehlo.composite "jq.fake_quant" %w {composite_attributes = {block = "0,0", format = "int8", scheme = "symmetric"}, decomposition = @fw} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = stablehlo.dot_general %x0, %w0, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.add %0, %b : tensor<4x4xf32>
  %2 = stablehlo.maximum %1, %zero : tensor<4x4xf32>
  %3 = stablehlo.composite "jq.fake_quant" %2, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}
// CHECK: changed: expand-fake-quant, lower-regions
// CHECK: @main(%arg0: tensor<4x4xf32>, %arg1: tensor<4x4xi8>
// CHECK: %[[Q:.*]] = stablehlo.composite "jq.quantize" %arg0
// CHECK: %[[O:.*]] = stablehlo.composite "jq.integer" %[[Q]], %arg1
// CHECK-SAME: codes = array<i64: -1, -1, 127>, kind = "contraction"
// CHECK-SAME: bias = dense<3932>
// CHECK-SAME: op = "stablehlo.dot_general"
// CHECK-SAME: decomposition = @[[F:.*]]}
// CHECK-NEXT: %[[D:.*]] = stablehlo.composite "jq.dequantize" %[[O]]
// CHECK-NEXT: return %[[D]]
// CHECK: func.func private @[[F]](%arg0: tensor<4x4xi8>, %arg1: tensor<4x4xi8>
// CHECK-DAG: %[[B:.*]] = stablehlo.constant dense<3932> : tensor<i32>
// CHECK-DAG: %[[M:.*]] = stablehlo.constant dense<1114129536> : tensor<i32>
// CHECK-DAG: %[[Z:.*]] = stablehlo.constant dense<-1> : tensor<i32>
// CHECK: %[[A:.*]] = stablehlo.dot_general %arg0, %arg1, {{.*}} -> tensor<4x4xi32>
// CHECK: stablehlo.subtract %[[A]], {{.*}} : tensor<4x4xi32>
// CHECK: stablehlo.add {{.*}} : tensor<4x4xi32>
// CHECK: stablehlo.multiply {{.*}} : tensor<4x4xi64>
// CHECK: stablehlo.maximum {{.*}} : tensor<4x4xi32>
// CHECK: %[[C:.*]] = stablehlo.convert {{.*}} : (tensor<4x4xi32>) -> tensor<4x4xi8>
// CHECK-NEXT: return %[[C]]
