// RUN: expand-fake-quant
// Blocks of MX are computed in float: the activation stays as it is.
func.func private @mx(%x: tensor<4x32xf32>) -> tensor<4x32xf32> { return %x : tensor<4x32xf32> }
func.func @main(%x: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %0 = stablehlo.composite "jq.fake_quant" %x {composite_attributes = {block = "1,32", format = "mxint8", scheme = "symmetric"}, decomposition = @mx} : (tensor<4x32xf32>) -> tensor<4x32xf32>
  return %0 : tensor<4x32xf32>
}
// CHECK: @main(%arg0: tensor<4x32xf32>)
// CHECK-NEXT: %[[Y:.*]] = stablehlo.composite "jq.fake_quant" %arg0
// CHECK-NEXT: return %[[Y]]
