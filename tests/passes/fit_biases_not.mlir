// RUN: expand-fake-quant, fit-biases, lower-regions
// SETTINGS: placement=early
// Biases that an accumulator holds leave the weights as they are.
func.func private @fq(%x: tensor<4x4xf32>, %l: tensor<1x1xf32>, %h: tensor<1x1xf32>) -> tensor<4x4xf32> {
  return %x : tensor<4x4xf32>
}
func.func private @fw(%x: tensor<4x4xf32>) -> tensor<4x4xf32> { return %x : tensor<4x4xf32> }
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32> {jq.weight = "w"}, %v: tensor<4x4xf32> {jq.weight = "v"}) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1xf32>
  %h = stablehlo.constant dense<1.0> : tensor<1x1xf32>
  %b = stablehlo.constant dense<[0.0, 1.0, -1.0, 0.5]> : tensor<4xf32>
  %b0 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %x0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %w0 = stablehlo.composite "jq.fake_quant" %w {composite_attributes = {block = "0,1", format = "int8", scheme = "symmetric"}, decomposition = @fw} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %v0 = stablehlo.composite "jq.fake_quant" %v {composite_attributes = {block = "0,1", format = "int8", scheme = "symmetric"}, decomposition = @fw} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %0 = stablehlo.dot_general %x0, %w0, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.add %0, %b0 : tensor<4x4xf32>
  %3 = stablehlo.composite "jq.fake_quant" %1, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %4 = stablehlo.dot_general %x0, %v0, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %5 = stablehlo.composite "jq.fake_quant" %4, %l, %h {composite_attributes = {block = "0,0", format = "int8", scheme = "asymmetric"}, decomposition = @fq} : (tensor<4x4xf32>, tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  return %3, %5 : tensor<4x4xf32>, tensor<4x4xf32>
}
// CHECK: changed: expand-fake-quant, lower-regions
