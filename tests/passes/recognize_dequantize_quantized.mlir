// RUN: recognize-dequantize
// A weight that the model quantizes itself is stored as the codes that come of it, once for both
// readers; an activation is not.
func.func @main(%x: tensor<4x2xf32>, %w: tensor<2x3xf32> {jq.weight = "w"}, %s: tensor<1x1xf32> {jq.weight = "s"}) -> tensor<4x3xf32> {
  %0 = stablehlo.composite "jq.quantize" %w, %s {composite_attributes = {format = "int8", shape = array<i64: 2, 3>, block = array<i64: 0, 0>, scheme = "symmetric", scale_type = "float32", options = {divisor = "absmax/127.5"}, parts = ["scale"], tensor = "q"}, decomposition = @quantize} : (tensor<2x3xf32>, tensor<1x1xf32>) -> tensor<2x3xi8>
  %1 = stablehlo.composite "jq.dequantize" %0, %s {composite_attributes = {format = "int8", shape = array<i64: 2, 3>, block = array<i64: 0, 0>, scheme = "symmetric", scale_type = "float32", options = {divisor = "absmax/127.5"}, parts = ["codes", "scale"], tensor = "d"}, decomposition = @dequantize} : (tensor<2x3xi8>, tensor<1x1xf32>) -> tensor<2x3xf32>
  %2 = stablehlo.composite "jq.dequantize" %0, %s {composite_attributes = {format = "int8", shape = array<i64: 2, 3>, block = array<i64: 0, 0>, scheme = "symmetric", scale_type = "float32", options = {divisor = "absmax/127.5"}, parts = ["codes", "scale"], tensor = "d"}, decomposition = @dequantize} : (tensor<2x3xi8>, tensor<1x1xf32>) -> tensor<2x3xf32>
  %3 = stablehlo.dot_general %x, %1, contracting_dims = [1] x [0] : (tensor<4x2xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %4 = stablehlo.dot_general %x, %2, contracting_dims = [1] x [0] : (tensor<4x2xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %5 = stablehlo.add %3, %4 : tensor<4x3xf32>
  return %5 : tensor<4x3xf32>
}
func.func private @quantize(%x: tensor<2x3xf32>, %s: tensor<1x1xf32>) -> tensor<2x3xi8> {
  %0 = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<2x3xf32>
  %1 = stablehlo.divide %x, %0 : tensor<2x3xf32>
  %2 = stablehlo.round_nearest_even %1 : tensor<2x3xf32>
  %3 = stablehlo.convert %2 : (tensor<2x3xf32>) -> tensor<2x3xi8>
  return %3 : tensor<2x3xi8>
}
func.func private @dequantize(%q: tensor<2x3xi8>, %s: tensor<1x1xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.convert %q : (tensor<2x3xi8>) -> tensor<2x3xf32>
  %1 = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<2x3xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<2x3xf32>
  return %2 : tensor<2x3xf32>
}
// CHECK: changed: recognize-dequantize
// CHECK-NOT: weight w: float32
// CHECK: weight w:codes: int8[2, 3]
// CHECK: weight w:scale: float32[1, 1]
// CHECK-NOT: stablehlo.composite "jq.quantize"
// CHECK: %[[W:.*]] = stablehlo.composite "jq.dequantize" %arg1, %arg2
// CHECK-NOT: stablehlo.composite
// CHECK: stablehlo.dot_general %arg0, %[[W]]
// CHECK: stablehlo.dot_general %arg0, %[[W]]
