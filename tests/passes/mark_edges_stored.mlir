// RUN: mark-edges
// SETTINGS: placement=early
// A quantize of the model's own ends a region with its codes, and its dequantize begins the next:
// no edge lies between them.
func.func private @q(%x: tensor<4xf32>, %s: tensor<1xf32>) -> tensor<4xi8> {
  %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}
func.func private @d(%q: tensor<4xi8>, %s: tensor<1xf32>) -> tensor<4xf32> {
  %0 = stablehlo.convert %q : (tensor<4xi8>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %s = stablehlo.constant dense<0.1> : tensor<1xf32>
  %0 = stablehlo.add %x, %y : tensor<4xf32>
  %1 = stablehlo.composite "jq.quantize" %0, %s {composite_attributes = {block = array<i64: 0>, format = "int8", options = {}, parts = ["scale"], scale_type = "float32", scheme = "symmetric", shape = array<i64: 4>, tensor = "own"}, decomposition = @q} : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xi8>
  %2 = stablehlo.composite "jq.dequantize" %1, %s {composite_attributes = {block = array<i64: 0>, format = "int8", options = {}, parts = ["codes", "scale"], scale_type = "float32", scheme = "symmetric", shape = array<i64: 4>, tensor = "own"}, decomposition = @d} : (tensor<4xi8>, tensor<1xf32>) -> tensor<4xf32>
  %3 = stablehlo.tanh %2 : tensor<4xf32>
  return %3 : tensor<4xf32>
}
// CHECK: changed: mark-edges
// CHECK-NOT: tensor = "add result
// CHECK: "jq.quantize"
// CHECK-NOT: "jq.edge"
// CHECK: stablehlo.tanh
// CHECK: "jq.edge"
