// RUN: expand-fake-quant, lower-regions, kernel-activations
// SETTINGS: placement=early
// KERNELS: avx2
// A product of two activations in a batch: the right one is packed as a weight, with both zero points.
func.func private @f3x8(%x: tensor<2x3x8xf32>, %l: tensor<1x1x1xf32>, %h: tensor<1x1x1xf32>) -> tensor<2x3x8xf32> {
  return %x : tensor<2x3x8xf32>
}
func.func private @f5x8(%x: tensor<2x5x8xf32>, %l: tensor<1x1x1xf32>, %h: tensor<1x1x1xf32>) -> tensor<2x5x8xf32> {
  return %x : tensor<2x5x8xf32>
}
func.func private @f3x5(%x: tensor<2x3x5xf32>, %l: tensor<1x1x1xf32>, %h: tensor<1x1x1xf32>) -> tensor<2x3x5xf32> {
  return %x : tensor<2x3x5xf32>
}
func.func @main(%x: tensor<2x3x8xf32>, %y: tensor<2x5x8xf32>) -> tensor<2x3x5xf32> {
  %l = stablehlo.constant dense<-1.0> : tensor<1x1x1xf32>
  %h = stablehlo.constant dense<3.0> : tensor<1x1x1xf32>
  %one = stablehlo.constant dense<1.0> : tensor<1x1x1xf32>
  %x0 = stablehlo.composite "jq.fake_quant" %x, %l, %h {composite_attributes = {block = "0,0,0", format = "int8", scheme = "asymmetric"}, decomposition = @f3x8} : (tensor<2x3x8xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> tensor<2x3x8xf32>
  %y0 = stablehlo.composite "jq.fake_quant" %y, %l, %one {composite_attributes = {block = "0,0,0", format = "int8", scheme = "asymmetric"}, decomposition = @f5x8} : (tensor<2x5x8xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> tensor<2x5x8xf32>
  %0 = stablehlo.dot_general %x0, %y0, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x3x8xf32>, tensor<2x5x8xf32>) -> tensor<2x3x5xf32>
  %1 = stablehlo.composite "jq.fake_quant" %0, %l, %h {composite_attributes = {block = "0,0,0", format = "int8", scheme = "asymmetric"}, decomposition = @f3x5} : (tensor<2x3x5xf32>, tensor<1x1x1xf32>, tensor<1x1x1xf32>) -> tensor<2x3x5xf32>
  return %1 : tensor<2x3x5xf32>
}
// CHECK: changed: expand-fake-quant, lower-regions, kernel-activations
// CHECK: %[[X:.*]] = stablehlo.composite "jq.quantize" %arg0
// CHECK: %[[Y:.*]] = stablehlo.composite "jq.quantize" %arg1
// The zero point of the rows, and what all sums start from: 8 * -64 * -1.
// CHECK: %[[N:.*]] = stablehlo.constant dense<[-64, 512]> : tensor<2xi32>
// CHECK: %[[R:.*]] = stablehlo.reshape %[[Y]] : (tensor<2x5x8xi8>) -> tensor<2x5x1x8xi8>
// CHECK: %[[P:.*]]:2 = call @jq_pack_values_2x3x8x5{{.*}}(%[[R]], %[[N]])
// CHECK: stablehlo.constant dense<-1> : tensor<i32>
// CHECK: call @jq_gemm_2x3x8x5{{.*}}(%[[X]], %[[P]]#0, %[[P]]#1, {{.*}} -> tensor<2x3x5xi8>
// CHECK-NOT: stablehlo.composite "jq.integer"
// CHECK: func.func private @jq_pack_values
// CHECK-SAME: transposed\22: true
