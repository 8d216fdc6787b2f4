#executable_target_embedded_elf_x86_64 = #hal.executable.target<"llvm-cpu", "embedded-elf-x86_64", {cpu = "generic", cpu_features = "", data_layout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128", iree.encoding.resolver = #iree_cpu.cpu_encoding_resolver<>, max_stack_allocation_size = 262144 : i64, native_vector_size = 16 : i64, target_triple = "x86_64-unknown-unknown-eabi-elf"}>
#loc1 = loc("-":1:1)
#loc2 = loc("-":2:8)
#loc3 = loc("dense/w:scale")
#loc5 = loc("-":3:8)
#loc6 = loc("-":4:8)
#loc7 = loc("-":5:8)
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
#device_target_local = #hal.device.target<"local", [#executable_target_embedded_elf_x86_64]> : !hal.device
#loc8 = loc("dense/w"(#loc2))
#loc9 = loc(callsite(#loc3 at #loc1))
#loc11 = loc(callsite(#loc5 at #loc1))
#loc12 = loc(callsite(#loc6 at #loc1))
#loc13 = loc(callsite(#loc7 at #loc1))
#loc14 = loc(callsite(#loc8 at #loc1))
module attributes {stream.affinity.default = #hal.device.affinity<@__device_0>} {
  util.global private @__device_0 = #device_target_local loc(#loc)
  util.func public @main(%arg0: !hal.buffer_view) -> !hal.buffer_view attributes {iree.abi.stub, iree.reflection = {iree.abi.declaration = "sync func @main(%input0: tensor<2x8xi8>) -> (%output0: tensor<2x4xf32>)"}} {
    %c0_i32 = arith.constant 0 : i32 loc(#loc14)
    %0 = flow.tensor.constant #flow.parameter.named<"model"::"dense/w:scale"> : tensor<4xf32> loc(#loc9)
    %1 = flow.tensor.constant #flow.parameter.named<"model"::"dense/w:codes"> : tensor<8x4xi8> loc(#loc10)
    %2 = hal.tensor.import %arg0 "input0" : !hal.buffer_view -> tensor<2x8xi8> loc(#loc1)
    %3 = iree_tensor_ext.compute_barrier.start %2 : tensor<2x8xi8> -> tensor<2x8xi8> loc(#loc1)
    %4 = tensor.empty() : tensor<2x4xi32> loc(#loc14)
    %5 = linalg.fill ins(%c0_i32 : i32) outs(%4 : tensor<2x4xi32>) -> tensor<2x4xi32> loc(#loc14)
    %6 = linalg.matmul ins(%3, %1 : tensor<2x8xi8>, tensor<8x4xi8>) outs(%5 : tensor<2x4xi32>) -> tensor<2x4xi32> loc(#loc14)
    %7 = tensor.empty() : tensor<2x4xf32> loc(#loc11)
    %8 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<2x4xi32>) outs(%7 : tensor<2x4xf32>) {
    ^bb0(%in: i32 loc(callsite(#loc8 at #loc1)), %out: f32 loc(callsite(#loc5 at #loc1))):
      %13 = arith.sitofp %in : i32 to f32 loc(#loc11)
      linalg.yield %13 : f32 loc(#loc11)
    } -> tensor<2x4xf32> loc(#loc11)
    %9 = linalg.generic {indexing_maps = [#map1, #map], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<4xf32>) outs(%7 : tensor<2x4xf32>) {
    ^bb0(%in: f32 loc(callsite(#loc3 at #loc1)), %out: f32 loc(callsite(#loc6 at #loc1))):
      linalg.yield %in : f32 loc(#loc12)
    } -> tensor<2x4xf32> loc(#loc12)
    %10 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%8, %9 : tensor<2x4xf32>, tensor<2x4xf32>) outs(%7 : tensor<2x4xf32>) {
    ^bb0(%in: f32 loc(callsite(#loc5 at #loc1)), %in_0: f32 loc(callsite(#loc6 at #loc1)), %out: f32 loc(callsite(#loc7 at #loc1))):
      %13 = arith.mulf %in, %in_0 : f32 loc(#loc13)
      linalg.yield %13 : f32 loc(#loc13)
    } -> tensor<2x4xf32> loc(#loc13)
    %11 = iree_tensor_ext.compute_barrier.end %10 : tensor<2x4xf32> -> tensor<2x4xf32> loc(#loc13)
    %12 = hal.tensor.export %11 "output0" : tensor<2x4xf32> -> !hal.buffer_view loc(#loc1)
    util.return %12 : !hal.buffer_view loc(#loc1)
  } loc(#loc1)
} loc(#loc)
#loc = loc("-":0:0)
#loc4 = loc("dense/w:codes")
#loc10 = loc(callsite(#loc4 at #loc1))
