// RUN: expand-fake-quant, lower-regions, kernel-activations
// SETTINGS: placement=early
// KERNELS: avx2
// No kernel: one operand is a weight, which another pass takes.
func.func private @f3x8(%x: tensor<2x3x8xf32>, %l: tensor<1x1x1xf32>, %h: tensor<1x1x1xf32>) -> tensor<2x3x8xf32> {
  return %x : tensor<2x3x8xf32>
}
func.func private @fw(%x: tensor<2x5x8xf32>) -> tensor<2x5x8xf32> { return %x : tensor<2x5x8xf32> }
func.func private @f3x5(%x: tensor<2x3x5xf32>, %l: tensor<1x1x1xf32>, %h: tensor<1x1x1xf32>) -> tensor<2x3x5xf32> {
  return %x : tensor<2x3x5xf32>
}
func.func @main(%x: tensor<2x3x8xf32>, %y: tensor<2x5x8xf32> {jq.weight = "y"}) -> tensor<2x3x5xf32> {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1x1xf32>
  %h = stablehlo.constant dense<3.0> : tensor<1x1x1xf32>
  %far = stablehlo.constant dense<-9.0> : tensor<1x1x1xf32>
  %x0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0,0", format = "int8", scheme = "asymmetric"}, decomposition = @f3x8} : (tensor<2x3x8xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> tensor<2x3x8xf32>
  %y0 = stablehlo.composite "jq.fake_quant" %y {composite_attributes = {block = "0,0,0", format = "int8", scheme = "symmetric"}, decomposition = @fw} : (tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %0 = stablehlo.dot_general %x0, %y0, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x3x8xf32>, tensor<2x5x8xf32>) -> tensor<2x3x5xf32>
  %1 = stablehlo.composite "jq.fake_quant" %0, %far, %h {composite_attributes = {block = "0,0,0", format = "int8", scheme = "asymmetric"}, decomposition = @f3x5} : (tensor<2x3x5xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}
// CHECK: changed: expand-fake-quant, lower-regions
// CHECK: stablehlo.composite "jq.integer"
// CHECK-NOT: call @jq_
