// RUN: expand-fake-quant
// A weight is stored as codes; an activation with a range gets its parameters, one without its own.
func.func private @fq(%x: tensor<4x4xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x4xf32> {
  return %x : tensor<4x4xf32>
}
func.func private @fw(%x: tensor<4x4xf32>) -> tensor<4x4xf32> { return %x : tensor<4x4xf32> }
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32> {jq.weight = "w"}) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %x0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %w0 = stablehlo.composite "jq.fake_quant" %w {composite_attributes = {block = "0,1", format = "int8", scheme = "symmetric"}, decomposition = @fw} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = stablehlo.dot_general %x0, %w0, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.composite "jq.fake_quant" %0 {composite_attributes = {block = "1,0", format = "int8", scheme = "symmetric"}, decomposition = @fw} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = stablehlo.composite "jq.fake_quant" %x0, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  return %1, %2 : tensor<4x4xf32>, tensor<4x4xf32>
}
// CHECK: changed: expand-fake-quant
// CHECK: weight w:codes: int8[4, 4]
// CHECK: weight w:scale: float32[1, 4]
// CHECK-DAG: %[[W:.*]] = stablehlo.composite "jq.dequantize" %arg1, %arg2
// CHECK-DAG: %[[Q:.*]] = stablehlo.composite "jq.quantize" %arg0
// CHECK: %[[X:.*]] = stablehlo.composite "jq.dequantize" %[[Q]]
// CHECK: %[[Y:.*]] = stablehlo.dot_general %[[X]], %[[W]]
// CHECK: %[[P:.*]]:2 = stablehlo.composite "jq.quantize_dynamic" %[[Y]]
// CHECK: %[[Z:.*]] = stablehlo.composite "jq.dequantize" %[[P]]#0, %[[P]]#1
// CHECK: return %[[Z]], %[[X]]
