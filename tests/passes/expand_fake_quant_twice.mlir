// RUN: expand-fake-quant
// A weight that is fake-quantized twice is stored once, as what the second one gives.
func.func private @fw(%x: tensor<4x4xf32>) -> tensor<4x4xf32> { return %x : tensor<4x4xf32> }
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32> {jq.weight = "w"}) -> tensor<4x4xf32> {
  %0 = stablehlo.composite "jq.fake_quant" %w {composite_attributes = {block = "0,1", format = "int8", scheme = "symmetric"}, decomposition = @fw} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.composite "jq.fake_quant" %0 {composite_attributes = {block = "0,0", format = "int4", scheme = "symmetric"}, decomposition = @fw} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = stablehlo.dot_general %x, %1, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}
// CHECK: changed: expand-fake-quant
// CHECK: weight w:codes: int8[4, 2]
// CHECK: weight w:scale: float32[1, 1]
// CHECK-NOT: weight w#2
// CHECK: %[[W:.*]] = stablehlo.composite "jq.dequantize" %arg1, %arg2
// CHECK: stablehlo.dot_general %arg0, %[[W]]
// CHECK-NOT: jq.fake_quant
