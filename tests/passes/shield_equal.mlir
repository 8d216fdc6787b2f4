// RUN: shield-equal
// Computed from equal constants, and reduced; a window of such; a constant itself; one that differs.
func.func @main(%x: tensor<2x3xi32>, %w: tensor<2x3xi8> {jq.weight = "w"})
    -> (tensor<2xi32>, tensor<2x2xi32>, tensor<2xi32>, tensor<2xi32>) {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %k = stablehlo.constant dense<5> : tensor<2x3xi8>
  %n = stablehlo.constant dense<2> : tensor<i8>
  %b = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<i8>) -> tensor<2x3xi8>
  %m = stablehlo.multiply %k, %b : tensor<2x3xi8>
  %a = stablehlo.convert %m : (tensor<2x3xi8>) -> tensor<2x3xi32>
  %0 = stablehlo.reduce(%a init: %c) applies stablehlo.add across dimensions = [1] : (tensor<2x3xi32>, tensor<i32>) -> tensor<2xi32>
  %1 = "stablehlo.reduce_window"(%a, %c) <{window_dimensions = array<i64: 1, 2>}> ({
  ^bb0(%p: tensor<i32>, %q: tensor<i32>):
    %s = stablehlo.add %p, %q : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) : (tensor<2x3xi32>, tensor<i32>) -> tensor<2x2xi32>
  %l = stablehlo.constant dense<7> : tensor<2x3xi32>
  %2 = stablehlo.reduce(%l init: %c) applies stablehlo.add across dimensions = [1] : (tensor<2x3xi32>, tensor<i32>) -> tensor<2xi32>
  %v = stablehlo.convert %w : (tensor<2x3xi8>) -> tensor<2x3xi32>
  %y = stablehlo.add %x, %v : tensor<2x3xi32>
  %3 = stablehlo.reduce(%y init: %c) applies stablehlo.add across dimensions = [1] : (tensor<2x3xi32>, tensor<i32>) -> tensor<2xi32>
  return %0, %1, %2, %3 : tensor<2xi32>, tensor<2x2xi32>, tensor<2xi32>, tensor<2xi32>
}
// CHECK: changed: shield-equal
// CHECK: [[A:%[0-9]+]] = stablehlo.convert {{.*}} : (tensor<2x3xi8>) -> tensor<2x3xi32>
// CHECK-NEXT: [[B:%[0-9]+]] = stablehlo.optimization_barrier [[A]]
// CHECK-NEXT: stablehlo.reduce([[B]]
// CHECK: [[W:%[0-9]+]] = stablehlo.optimization_barrier [[A]]
// CHECK-NEXT: reduce_window"([[W]]
// CHECK-NOT: optimization_barrier
