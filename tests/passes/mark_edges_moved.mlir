// RUN: mark-edges
// SETTINGS: placement=early
// The model's own codes are moved as they are: what reads them behind a reshape and a transpose reads
// no edge, which would have a range of its own.
func.func private @d(%q: tensor<1x1x4xi8>, %s: tensor<1x1x1xf32>) -> tensor<1x1x4xf32> {
  %0 = stablehlo.convert %q : (tensor<1x1x4xi8>) -> tensor<1x1x4xf32>
  return %0 : tensor<1x1x4xf32>
}
func.func @main(%q: tensor<1x1x4xi8>, %w: tensor<4x3xf32> {jq.weight = "w"}) -> tensor<1x3xf32> {
  %s = stablehlo.constant dense<0.1> : tensor<1x1x1xf32>
  %0 = stablehlo.composite "jq.dequantize" %q, %s {composite_attributes = {block = array<i64: 0, 0, 0>, format = "int8", options = {}, parts = ["codes", "scale"], scale_type = "float32", scheme = "symmetric", shape = array<i64: 1, 1, 4>, tensor = "own"}, decomposition = @d} : (tensor<1x1x4xi8>, tensor<1x1x1xf32>) -> tensor<1x1x4xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0, 2] : (tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  %2 = stablehlo.reshape %1 : (tensor<1x1x4xf32>) -> tensor<1x4xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] {jq.name = "dense"} : (tensor<1x4xf32>, tensor<4x3xf32>) -> tensor<1x3xf32>
  return %3 : tensor<1x3xf32>
}
// CHECK: stablehlo.reshape
// CHECK-NOT: "jq.edge"
// CHECK: stablehlo.dot_general
