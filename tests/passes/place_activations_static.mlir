// RUN: place-activations
// SETTINGS: weights.format=int8 activations.format=int8 activations.mode=static
// RANGES: w:0=-1,4.1
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32> {jq.weight = "w"}) -> tensor<4x3xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}
// CHECK: [[S:%cst[_0-9]*]] = stablehlo.constant dense<2.000000e-02> : tensor<1x1xf32>
// CHECK: [[Z:%c[_0-9]*]] = stablehlo.constant dense<-78> : tensor<1x1xi32>
// CHECK: [[Q:%[0-9]+]] = stablehlo.composite "jq.quantize" %arg0, [[S]], [[Z]]
// CHECK-NEXT: [[D:%[0-9]+]] = stablehlo.composite "jq.dequantize" [[Q]], [[S]], [[Z]]
// CHECK-NEXT: dot_general [[D]], %arg1
