// RUN: lower-regions
// SETTINGS: placement=early
// A quotient whose steps are 1e30 cannot be brought to codes in steps of 1e-10: refused by name.
// ERROR: its operands cannot be brought to steps of 1e-10, those of its result
func.func @main(%a: tensor<4xi8>, %b: tensor<4xi8>) -> tensor<4xi8> {
  %s = stablehlo.constant dense<1.0e30> : tensor<1xf32>
  %t = stablehlo.constant dense<1.0> : tensor<1xf32>
  %u = stablehlo.constant dense<1.0e-10> : tensor<1xf32>
  %0 = stablehlo.composite "jq.dequantize" %a, %s {composite_attributes = {format = "int8", options = {}, shape = array<i64: 4>, block = array<i64: 0>, scheme = "symmetric", scale_type = "float32", parts = ["codes", "scale"], tensor = "a"}, decomposition = @dequantize} : (tensor<4xi8>, tensor<1xf32>) -> tensor<4xf32>
  %1 = stablehlo.composite "jq.dequantize" %b, %t {composite_attributes = {format = "int8", options = {}, shape = array<i64: 4>, block = array<i64: 0>, scheme = "symmetric", scale_type = "float32", parts = ["codes", "scale"], tensor = "b"}, decomposition = @dequantize} : (tensor<4xi8>, tensor<1xf32>) -> tensor<4xf32>
  %2 = stablehlo.divide %0, %1 {jq.name = "share"} : tensor<4xf32>
  %3 = stablehlo.composite "jq.quantize" %2, %u {composite_attributes = {format = "int8", options = {}, shape = array<i64: 4>, block = array<i64: 0>, scheme = "symmetric", scale_type = "float32", parts = ["scale"], tensor = "share"}, decomposition = @quantize} : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xi8>
  return %3 : tensor<4xi8>
}
func.func private @dequantize(%q: tensor<4xi8>, %s: tensor<1xf32>) -> tensor<4xf32> {
  %0 = stablehlo.convert %q : (tensor<4xi8>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @quantize(%x: tensor<4xf32>, %s: tensor<1xf32>) -> tensor<4xi8> {
  %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}
