// RUN: widen-floats
// SETTINGS: placement=early
// The scale of a stored weight has the type of its format; what it stands for is float32.
func.func private @jq.dequantize.0(%c: tensor<4xi8>, %s: tensor<1xf16>) -> tensor<4xbf16> {
  %0 = stablehlo.convert %c : (tensor<4xi8>) -> tensor<4xf32>
  %1 = stablehlo.convert %s : (tensor<1xf16>) -> tensor<1xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<1xf32>) -> tensor<4xf32>
  %3 = stablehlo.multiply %0, %2 : tensor<4xf32>
  %4 = stablehlo.convert %3 : (tensor<4xf32>) -> tensor<4xbf16>
  return %4 : tensor<4xbf16>
}
func.func @main(%x: tensor<4xf32>, %c: tensor<4xi8> {jq.weight = "w:codes"},
                %s: tensor<1xf16> {jq.weight = "w:scale"}) -> tensor<4xf32> {
  %w = stablehlo.composite "jq.dequantize" %c, %s {composite_attributes = {block = array<i64: 0>,
       format = "int8", options = {}, parts = ["codes", "scale"], scale_type = "float16",
       scheme = "symmetric", shape = array<i64: 4>, tensor = "w"}, decomposition = @jq.dequantize.0}
       : (tensor<4xi8>, tensor<1xf16>) -> tensor<4xbf16>
  %0 = stablehlo.convert %w : (tensor<4xbf16>) -> tensor<4xf32>
  %1 = stablehlo.add %x, %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
// CHECK: changed: widen-floats
// CHECK: weight w:scale: float16[1]
// CHECK: %[[W:.*]] = stablehlo.composite "jq.dequantize" %arg1, %arg2 {{.*}} (tensor<4xi8>, tensor<1xf16>) -> tensor<4xf32>
// CHECK: stablehlo.add %arg0, %[[W]]
