// RUN: expand-fake-quant, lower-regions
// SETTINGS: placement=early
// A function of single elements is a table, also one that begins with a comparison.
func.func private @fq(%x: tensor<4x4xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x4xf32> {
  return %x : tensor<4x4xf32>
}
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<4x4xf32>
  %x0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %p = stablehlo.compare GT, %x0, %zero : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>
  %0 = stablehlo.select %p, %zero, %x0 : tensor<4x4xi1>, tensor<4x4xf32>
  %1 = stablehlo.exponential_minus_one %0 : tensor<4x4xf32>
  %2 = stablehlo.select %p, %x0, %1 : tensor<4x4xi1>, tensor<4x4xf32>
  %3 = stablehlo.composite "jq.fake_quant" %2, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}
// CHECK: changed: expand-fake-quant, lower-regions
// CHECK: %[[Q:.*]] = stablehlo.composite "jq.quantize" %arg0
// CHECK-NOT: compare
// CHECK: %[[O:.*]] = stablehlo.composite "jq.integer" %[[Q]] {{.*}}kind = "table"
// CHECK-NEXT: %[[D:.*]] = stablehlo.composite "jq.dequantize" %[[O]]
// CHECK-NEXT: return %[[D]]
// CHECK: func.func private @jq.integer
// CHECK: %[[T:.*]] = stablehlo.constant {{.*}} : tensor<256xi8>
// CHECK: stablehlo.convert %arg0 : (tensor<4x4xi8>) -> tensor<4x4xi32>
// CHECK: "stablehlo.gather"(%[[T]]
