// RUN: saturate-converts
func.func @main(%x: tensor<3xbf16>) -> tensor<3xi8> {
  %y = stablehlo.convert %x : (tensor<3xbf16>) -> tensor<3xi8>
  return %y : tensor<3xi8>
}
// CHECK: [[X:%[0-9]+]] = stablehlo.convert %arg0 : (tensor<3xbf16>) -> tensor<3xf32>
// CHECK: compare EQ, [[X]], [[X]]
// CHECK: select
// CHECK: dense<-1.280000e+02>
// CHECK: maximum
// CHECK: dense<1.270000e+02>
// CHECK: [[Y:%[0-9]+]] = stablehlo.minimum
// CHECK-NEXT: stablehlo.convert [[Y]] {{.*}} -> tensor<3xi8>
