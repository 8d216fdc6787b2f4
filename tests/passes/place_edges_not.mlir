// RUN: place-edges
// SETTINGS: activations.format=int8 activations.mode=static activations.granularity=per-tensor weights.format=float op_types=convolution
// RANGES: a:0=-1,1
// An edge that only a float product reads disappears.
func.func private @e(%x: tensor<4x4xf32>) -> tensor<4x4xf32> { return %x : tensor<4x4xf32> }
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = stablehlo.composite "jq.edge" %x {composite_attributes = {tensor = "a"}, decomposition = @e} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
// CHECK-NOT: jq.quantize
// CHECK: stablehlo.dot_general %arg0, %arg0
