// RUN: kernel-frames
// KERNELS: avx512_vnni
func.func @main(%x: tensor<24x8xi8>, %w: tensor<1x2x64xi8>, %i: tensor<16xi32>,
                %s: tensor<16xf32>, %z: tensor<1xi32>, %c: tensor<i8>) -> (tensor<2x5x7x16xi8>, tensor<2x3x4x16xi8>, tensor<2x5x6x16xi8>, tensor<2x5x6x16xi8>,
                tensor<2x3x7x16xi8>, tensor<2x3x4x18xi8>, tensor<2x3x3x16xi8>, tensor<2x3x10x8xi8>) {
  %k = stablehlo.constant dense<-9> : tensor<i8>
  // somebody else reads the image
  %a = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %a1 = stablehlo.reshape %a : (tensor<24x16xi8>) -> tensor<2x3x4x16xi8>
  %a2 = stablehlo.pad %a1, %k, low = [0, 1, 1, 0], high = [0, 1, 1, 0], interior = [0, 0, 0, 0]
       : (tensor<2x3x4x16xi8>, tensor<i8>) -> tensor<2x5x6x16xi8>
  // the code is known at run time alone
  %b = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %b1 = stablehlo.reshape %b : (tensor<24x16xi8>) -> tensor<2x3x4x16xi8>
  %b2 = stablehlo.pad %b1, %c, low = [0, 1, 1, 0], high = [0, 1, 1, 0], interior = [0, 0, 0, 0]
       : (tensor<2x3x4x16xi8>, tensor<i8>) -> tensor<2x5x6x16xi8>
  // between pixels
  %d = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %d1 = stablehlo.reshape %d : (tensor<24x16xi8>) -> tensor<2x3x4x16xi8>
  %d2 = stablehlo.pad %d1, %k, low = [0, 0, 0, 0], high = [0, 0, 0, 0], interior = [0, 0, 1, 0]
       : (tensor<2x3x4x16xi8>, tensor<i8>) -> tensor<2x3x7x16xi8>
  // along channels
  %e = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %e1 = stablehlo.reshape %e : (tensor<24x16xi8>) -> tensor<2x3x4x16xi8>
  %e2 = stablehlo.pad %e1, %k, low = [0, 0, 0, 1], high = [0, 0, 0, 1], interior = [0, 0, 0, 0]
       : (tensor<2x3x4x16xi8>, tensor<i8>) -> tensor<2x3x4x18xi8>
  // something is cut off
  %f = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %f1 = stablehlo.reshape %f : (tensor<24x16xi8>) -> tensor<2x3x4x16xi8>
  %f2 = stablehlo.pad %f1, %k, low = [0, 0, -1, 0], high = [0, 0, 0, 0], interior = [0, 0, 0, 0]
       : (tensor<2x3x4x16xi8>, tensor<i8>) -> tensor<2x3x3x16xi8>
  // rows of the result are not pixels
  %g = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %g1 = stablehlo.reshape %g : (tensor<24x16xi8>) -> tensor<2x3x8x8xi8>
  %g2 = stablehlo.pad %g1, %k, low = [0, 0, 1, 0], high = [0, 0, 1, 0], interior = [0, 0, 0, 0]
       : (tensor<2x3x8x8xi8>, tensor<i8>) -> tensor<2x3x10x8xi8>
  // a pool of a dilated image
  %h = call @jq_gemm(%x, %w, %i, %s, %z) : (tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  %h1 = stablehlo.reshape %h : (tensor<24x16xi8>) -> tensor<2x3x4x16xi8>
  %h2 = "stablehlo.reduce_window"(%h1, %k) <{padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>,
       base_dilations = array<i64: 1, 2, 2, 1>, window_dimensions = array<i64: 1, 3, 3, 1>}> ({
  ^bb0(%y: tensor<i8>, %v: tensor<i8>):
    %m = stablehlo.maximum %y, %v : tensor<i8>
    stablehlo.return %m : tensor<i8>
  }) : (tensor<2x3x4x16xi8>, tensor<i8>) -> tensor<2x5x7x16xi8>
  return %h2, %a1, %a2, %b2, %d2, %e2, %f2, %g2 : tensor<2x5x7x16xi8>, tensor<2x3x4x16xi8>, tensor<2x5x6x16xi8>, tensor<2x5x6x16xi8>,
         tensor<2x3x7x16xi8>, tensor<2x3x4x18xi8>, tensor<2x3x3x16xi8>, tensor<2x3x10x8xi8>
}
func.func private @jq_gemm(tensor<24x8xi8>, tensor<1x2x64xi8>, tensor<16xi32>, tensor<16xf32>, tensor<1xi32>) -> tensor<24x16xi8>
  attributes {jq.kernel = "{\22epilogue\22: [{\22kind\22: \22dequantize\22}, {\22kind\22: \22codes\22}], \22isa\22: \22avx512_vnni\22, \22k\22: 8, \22kernel\22: \22gemm\22, \22m\22: 24, \22n\22: 16}"}
// CHECK: changed: none
