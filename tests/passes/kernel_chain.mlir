// RUN: kernel-chain
// KERNELS: avx2
func.func @main(%x: tensor<2x1x32xf32>, %r: tensor<2x1x32xf32>, %g: tensor<32xf32>, %h: tensor<32xf32>)
    -> (tensor<2x1x32xf32>, tensor<2x32xi8>, tensor<4xf32>, tensor<2x2x32xi8>, tensor<2x1xf32>, tensor<2x32xf32>) {
  %0 = stablehlo.reshape %x : (tensor<2x1x32xf32>) -> tensor<2x32xf32>
  %1 = call @jq_normalize(%0, %g) {jq.name = "first"} : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  %2 = stablehlo.reshape %1 : (tensor<2x32xf32>) -> tensor<2x1x32xf32>
  %3 = stablehlo.add %r, %2 : tensor<2x1x32xf32>
  %4 = stablehlo.reshape %3 : (tensor<2x1x32xf32>) -> tensor<2x32xf32>
  %5 = call @jq_normalize(%4, %h) {jq.name = "second"} : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  %6 = stablehlo.reshape %5 : (tensor<2x32xf32>) -> tensor<4x16xf32>
  %7:2 = call @jq_quantize(%6) {jq.name = "codes"} : (tensor<4x16xf32>) -> (tensor<4x16xi8>, tensor<4xf32>)
  %8 = stablehlo.reshape %7#0 : (tensor<4x16xi8>) -> tensor<2x32xi8>
  %9:2 = call @jq_split(%5) {jq.name = "digits"} : (tensor<2x32xf32>) -> (tensor<2x2x32xi8>, tensor<2x1xf32>)
  %10 = stablehlo.add %5, %5 : tensor<2x32xf32>
  return %3, %8, %7#1, %9#0, %9#1, %10 : tensor<2x1x32xf32>, tensor<2x32xi8>, tensor<4xf32>, tensor<2x2x32xi8>, tensor<2x1xf32>, tensor<2x32xf32>
}
func.func private @jq_normalize(tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32> attributes {jq.kernel = "{\"beta\": false, \"center\": false, \"epsilon\": 1e-05, \"factors\": false, \"gamma\": true, \"isa\": \"avx2\", \"k\": 32, \"keep\": true, \"kernel\": \"normalize\", \"m\": 2, \"scheme\": null, \"sequences\": null}"}
func.func private @jq_quantize(tensor<4x16xf32>) -> (tensor<4x16xi8>, tensor<4xf32>) attributes {jq.kernel = "{\"factors\": false, \"isa\": \"avx2\", \"k\": 16, \"kernel\": \"quantize_rows\", \"m\": 4, \"scheme\": {\"measured\": false, \"narrow\": true, \"scheme\": \"symmetric\", \"unsigned\": false, \"unsigned_zero\": false, \"wide\": 0}, \"sequences\": null}"}
func.func private @jq_split(tensor<2x32xf32>) -> (tensor<2x2x32xi8>, tensor<2x1xf32>) attributes {jq.kernel = "{\"block\": 32, \"digits\": 2, \"isa\": \"avx2\", \"k\": 32, \"kernel\": \"split_rows\", \"m\": 2}"}
// CHECK: changed: kernel-chain
// The sum and the rows that another op reads are results as well.
// CHECK: [[ROWS:%[0-9]+]]:6 = call @jq_row_chain_2x32_{{[0-9a-f]+}}({{.*}}, {{.*}}, {{.*}}, {{.*}}) {jq.name = "first"}
// CHECK-SAME: -> (tensor<2x32xf32>, tensor<2x32xf32>, tensor<2x2x32xi8>, tensor<2x1xf32>, tensor<2x32xi8>, tensor<2x2xf32>)
// CHECK-NOT: call @
// CHECK: return
// CHECK-NOT: @jq_normalize
