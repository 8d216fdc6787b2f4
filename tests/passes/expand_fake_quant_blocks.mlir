// RUN: expand-fake-quant
// The first has a pair of its own, the second is the same, the third is another format: kept.
func.func private @mx(%x: tensor<4x64xf32>) -> tensor<4x64xf32> { return %x : tensor<4x64xf32> }
func.func @main(%x: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %0 = stablehlo.composite "jq.fake_quant" %x {composite_attributes = {block = "1,32", format = "mxint8", scheme = "symmetric"}, decomposition = @mx} : (tensor<4x64xf32>) -> tensor<4x64xf32>
  %1 = stablehlo.composite "jq.fake_quant" %0 {composite_attributes = {block = "1,32", format = "mxint8", scheme = "symmetric"}, decomposition = @mx} : (tensor<4x64xf32>) -> tensor<4x64xf32>
  %2 = stablehlo.composite "jq.fake_quant" %1 {composite_attributes = {block = "1,32", format = "mxfp4", scheme = "symmetric"}, decomposition = @mx} : (tensor<4x64xf32>) -> tensor<4x64xf32>
  return %2 : tensor<4x64xf32>
}
// CHECK: %[[Q:.*]]:2 = stablehlo.composite "jq.quantize_dynamic" %arg0 {{.*}}format = "mxint8"
// CHECK-NEXT: %[[D:.*]] = stablehlo.composite "jq.dequantize" %[[Q]]#0, %[[Q]]#1
// CHECK-NEXT: %[[R:.*]]:2 = stablehlo.composite "jq.quantize_dynamic" %[[D]] {{.*}}format = "mxfp4"
// CHECK-NEXT: %[[Y:.*]] = stablehlo.composite "jq.dequantize" %[[R]]#0, %[[R]]#1
// CHECK-NEXT: return %[[Y]]
