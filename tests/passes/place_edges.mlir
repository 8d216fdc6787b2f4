// RUN: place-edges
// SETTINGS: activations.format=int8 activations.residual=int16 activations.mode=static activations.granularity=per-tensor weights.format=float
// RANGES: a:0=-1,1
// RANGES: b:0=-0.7,0.7
// RANGES: c:0=-0.1,0.1
// RANGES: d:0=-1,1
// A transpose joins a and b: they share the wider range. c keeps its own, whose steps would more
// than double. d is wide: int16.
func.func private @e(%x: tensor<4x4xf32>) -> tensor<4x4xf32> { return %x : tensor<4x4xf32> }
func.func @main(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %a = stablehlo.composite "jq.edge" %x {composite_attributes = {tensor = "a"}, decomposition = @e} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = stablehlo.composite "jq.edge" %0 {composite_attributes = {tensor = "b"}, decomposition = @e} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.reverse %0, dims = [0] : tensor<4x4xf32>
  %c = stablehlo.composite "jq.edge" %1 {composite_attributes = {tensor = "c"}, decomposition = @e} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = stablehlo.composite "jq.edge" %x {composite_attributes = {tensor = "d", wide}, decomposition = @e} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %a, %b, %c, %d : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
// CHECK: changed: place-edges
// CHECK: %[[A:.*]] = stablehlo.constant dense<0.00784313772> : tensor<1x1xf32>
// CHECK: "jq.quantize" %arg0, %[[A]], {{.*}}tensor = "a"
// CHECK: %[[B:.*]] = stablehlo.constant dense<0.00784313772> : tensor<1x1xf32>
// CHECK: "jq.quantize" %{{.*}}, %[[B]], {{.*}}tensor = "b"
// CHECK: %[[C:.*]] = stablehlo.constant dense<7.843{{.*}}E-4> : tensor<1x1xf32>
// CHECK: "jq.quantize" %{{.*}}, %[[C]], {{.*}}tensor = "c"
// CHECK: %[[D:.*]] = stablehlo.constant dense<3.05{{.*}}E-5> : tensor<1x1xf32>
// CHECK: "jq.quantize" %arg0, %[[D]], {{.*}}tensor = "d"
