// RUN: plain-functions
func.func @main(%x: tensor<4xf32>, %h: tensor<4xf16>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf16>, tensor<4xf16>) {
  %s = stablehlo.sine %x : tensor<4xf32>
  %c = stablehlo.cbrt %x : tensor<4xf32>
  %t = stablehlo.tan %h : tensor<4xf16>
  %l = stablehlo.logistic %h : tensor<4xf16>
  return %s, %c, %t, %l : tensor<4xf32>, tensor<4xf32>, tensor<4xf16>, tensor<4xf16>
}
// CHECK: changed: plain-functions
// CHECK-NOT: stablehlo.{{sine|cbrt|tan}}
// CHECK: stablehlo.multiply {{.*}} : tensor<4xf64>
// CHECK: stablehlo.round_nearest_even {{.*}} : tensor<4xf64>
// CHECK: stablehlo.convert %arg1 : (tensor<4xf16>) -> tensor<4xf32>
// CHECK: stablehlo.logistic {{.*}} : tensor<4xf32>
// CHECK-NOT: stablehlo.{{sine|cbrt|tan}}
