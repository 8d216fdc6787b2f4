// RUN: kernel-frames
// KERNELS: avx512_vnni
func.func @main(%x: tensor<24x8xi8>, %w: tensor<1x2x64xi8>, %i: tensor<16xi32>,
                %s: tensor<16xf32>, %z: tensor<1xi32>) -> (tensor<2x5x7x16xi8>, tensor<2x3x4x16xi8>) {
  %0 = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %1 = stablehlo.reshape %0 : (tensor<24x16xi8>) -> tensor<2x12x16xi8>
  %2 = stablehlo.reshape %1 : (tensor<2x12x16xi8>) -> tensor<2x3x4x16xi8>
  %c = stablehlo.constant dense<-9> : tensor<i8>
  %3 = stablehlo.pad %2, %c, low = [0, 1, 0, 0], high = [0, 1, 3, 0], interior = [0, 0, 0, 0]
       : (tensor<2x3x4x16xi8>, tensor<i8>) -> tensor<2x5x7x16xi8>
  %4 = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %5 = stablehlo.reshape %4 : (tensor<24x16xi8>) -> tensor<2x3x4x16xi8>
  %low = stablehlo.constant dense<-128> : tensor<i8>
  %6 = "stablehlo.reduce_window"(%5, %low) <{padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>,
       window_dimensions = array<i64: 1, 3, 3, 1>}> ({
  ^bb0(%a: tensor<i8>, %b: tensor<i8>):
    %7 = stablehlo.maximum %a, %b : tensor<i8>
    stablehlo.return %7 : tensor<i8>
  }) : (tensor<2x3x4x16xi8>, tensor<i8>) -> tensor<2x3x4x16xi8>
  return %3, %6 : tensor<2x5x7x16xi8>, tensor<2x3x4x16xi8>
}
func.func private @jq_gemm(tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  attributes {jq.kernel = "{\22epilogue\22: [{\22kind\22: \22dequantize\22}, {\22kind\22: \22codes\22}], \22isa\22: \22avx512_vnni\22, \22k\22: 8, \22kernel\22: \22gemm\22, \22m\22: 24, \22n\22: 16}"}
// The kernels give padded images, for a pool too; nothing is left of the plain ones.
// CHECK: changed: kernel-frames
// CHECK-NOT: stablehlo.pad
// CHECK: [[Y:%[0-9]+]] = call @[[KERNEL:jq_gemm_24x8x16_[0-9a-f]+]]({{.*}}-> tensor<70x16xi8>
// CHECK-NEXT: [[P:%[0-9]+]] = stablehlo.reshape [[Y]] : (tensor<70x16xi8>) -> tensor<2x5x7x16xi8>
// CHECK: [[Z:%[0-9]+]] = call @[[OTHER:jq_gemm_24x8x16_[0-9a-f]+]]({{.*}}-> tensor<60x16xi8>
// CHECK-NEXT: [[W:%[0-9]+]] = stablehlo.reshape [[Z]] : (tensor<60x16xi8>) -> tensor<2x5x6x16xi8>
// CHECK: "stablehlo.reduce_window"([[W]]
// CHECK-SAME: padding = dense<0>
// CHECK: return [[P]]
// CHECK: func.func private @[[KERNEL]]{{.*}}rows\22: {\22code\22: -9, \22height\22: 3, \22kind\22: \22frame\22, \22padding\22: {{\[\[}}1, 1], [0, 3]], \22width\22: 4}
// CHECK: func.func private @[[OTHER]]{{.*}}rows\22: {\22code\22: -128, \22height\22: 3, \22kind\22: \22frame\22, \22padding\22: {{\[\[}}1, 1], [1, 1]], \22width\22: 4}
// CHECK-NOT: func.func private
