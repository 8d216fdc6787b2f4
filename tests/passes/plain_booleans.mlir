// RUN: plain-booleans
func.func @main(%b: tensor<9x17xi1>, %x: tensor<17xbf16>, %i: tensor<4xi8>) -> (tensor<9x17xf32>, tensor<17xi1>, tensor<4xi1>, tensor<9x17xi32>) {
  %0 = stablehlo.convert %b : (tensor<9x17xi1>) -> tensor<9x17xf32>
  %1 = stablehlo.convert %x : (tensor<17xbf16>) -> tensor<17xi1>
  %2 = stablehlo.convert %i : (tensor<4xi8>) -> tensor<4xi1>
  %3 = stablehlo.convert %b : (tensor<9x17xi1>) -> tensor<9x17xi32>
  return %0, %1, %2, %3 : tensor<9x17xf32>, tensor<17xi1>, tensor<4xi1>, tensor<9x17xi32>
}
// CHECK: changed: plain-booleans
// CHECK-NOT: stablehlo.convert
// CHECK: %[[F:.*]] = stablehlo.select %arg0, %{{.*}}, %{{.*}} : tensor<9x17xi1>, tensor<9x17xf32>
// CHECK: %[[B:.*]] = stablehlo.compare NE, %arg1, {{.*}} tensor<17xbf16>
// CHECK: %[[I:.*]] = stablehlo.compare NE, %arg2, {{.*}} tensor<4xi8>
// CHECK: stablehlo.select %arg0, {{.*}} tensor<9x17xi32>
