// RUN: plain-unsigned
func.func @main(%x: tensor<4xui8>, %y: tensor<4xui8>) -> (tensor<4xui8>, tensor<4xf32>) {
  %r = stablehlo.reverse %x, dims = [0] : tensor<4xui8>
  %m = stablehlo.maximum %r, %y : tensor<4xui8>
  %f = stablehlo.convert %m : (tensor<4xui8>) -> tensor<4xf32>
  return %m, %f : tensor<4xui8>, tensor<4xf32>
}
// CHECK: changed: plain-unsigned
// CHECK: @main(%arg0: tensor<4xui8>, %arg1: tensor<4xui8>) -> (tensor<4xui8>, tensor<4xf32>)
// CHECK: stablehlo.bitcast_convert %arg0 : (tensor<4xui8>) -> tensor<4xi8>
// CHECK: stablehlo.reverse {{.*}} : tensor<4xi8>
// CHECK: stablehlo.xor
// CHECK: stablehlo.xor
// CHECK: stablehlo.maximum {{.*}} : tensor<4xi8>
// CHECK: stablehlo.xor
// CHECK: stablehlo.convert {{.*}} : (tensor<4xi8>) -> tensor<4xi32>
// CHECK: stablehlo.and {{.*}} : tensor<4xi32>
// CHECK: stablehlo.convert {{.*}} : (tensor<4xi32>) -> tensor<4xf32>
// CHECK: stablehlo.bitcast_convert {{.*}} : (tensor<4xi8>) -> tensor<4xui8>
