// RUN: kernel-chain
// KERNELS: avx2
// What it adds is made later than the rows that it is added to; a row that is normalized is not
// normalized again; a sum or a code alone begins no chain.
func.func @main(%x: tensor<2x32xf32>, %g: tensor<32xf32>, %h: tensor<32xf32>) -> (tensor<2x32xf32>, tensor<2x32xf32>, tensor<4x16xi8>, tensor<4xf32>) {
  %0 = call @jq_normalize(%x, %g) {jq.name = "first"} : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  %1 = stablehlo.multiply %x, %x : tensor<2x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<2x32xf32>
  %3 = call @jq_normalize(%2, %h) {jq.name = "second"} : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  %4 = call @jq_normalize(%3, %h) {jq.name = "third"} : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  %5 = stablehlo.add %x, %x : tensor<2x32xf32>
  %6 = stablehlo.reshape %5 : (tensor<2x32xf32>) -> tensor<4x16xf32>
  %7:2 = call @jq_quantize(%6) {jq.name = "codes"} : (tensor<4x16xf32>) -> (tensor<4x16xi8>, tensor<4xf32>)
  return %2, %4, %7#0, %7#1 : tensor<2x32xf32>, tensor<2x32xf32>, tensor<4x16xi8>, tensor<4xf32>
}
func.func private @jq_normalize(tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32> attributes {jq.kernel = "{\"beta\": false, \"center\": false, \"epsilon\": 1e-05, \"factors\": false, \"gamma\": true, \"isa\": \"avx2\", \"k\": 32, \"keep\": true, \"kernel\": \"normalize\", \"m\": 2, \"scheme\": null, \"sequences\": null}"}
func.func private @jq_quantize(tensor<4x16xf32>) -> (tensor<4x16xi8>, tensor<4xf32>) attributes {jq.kernel = "{\"factors\": false, \"isa\": \"avx2\", \"k\": 16, \"kernel\": \"quantize_rows\", \"m\": 4, \"scheme\": {\"measured\": false, \"narrow\": true, \"scheme\": \"symmetric\", \"unsigned\": false, \"unsigned_zero\": false, \"wide\": 0}, \"sequences\": null}"}
func.func private @jq_split(tensor<2x32xf32>) -> (tensor<2x2x32xi8>, tensor<2x1xf32>) attributes {jq.kernel = "{\"block\": 32, \"digits\": 2, \"isa\": \"avx2\", \"k\": 32, \"kernel\": \"split_rows\", \"m\": 2}"}
// CHECK-NOT: kernel-chain
// CHECK: call @jq_normalize
// CHECK: call @jq_normalize
// CHECK: call @jq_normalize
// CHECK: call @jq_quantize
