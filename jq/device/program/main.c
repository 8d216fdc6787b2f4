// Runs the program of this folder: main IN0 IN1 ... OUT0 OUT1 ...
//
// Each file holds the elements of one input or output (program.h) and nothing else. Replace what
// reads and writes files by your own; the calls of IREE stay.

#include <stdio.h>
#include <stdlib.h>

#include "iree/async/util/proactor_pool.h"
#include "iree/base/threading/numa.h"
#include "iree/hal/drivers/local_sync/sync_device.h"
#include "iree/hal/local/loaders/static_library_loader.h"
#include "iree/runtime/api.h"
#include "library.h"
#include "program.h"

iree_status_t CREATE(iree_vm_instance_t*, iree_allocator_t, iree_vm_module_t**);

// A device that computes on the calling thread, with the arithmetic that is linked in.
static iree_status_t make_device(iree_allocator_t host, iree_hal_device_t** device) {
  const iree_hal_executable_library_query_fn_t libraries[] = {QUERY};
  iree_string_view_t name = iree_make_cstring_view("local-sync");
  iree_hal_sync_device_params_t params;
  iree_hal_sync_device_params_initialize(&params);
  iree_hal_executable_loader_t* loader = NULL;
  IREE_RETURN_IF_ERROR(iree_hal_static_library_loader_create(
      1, libraries, iree_hal_executable_import_provider_null(), host, &loader));
  iree_hal_allocator_t* allocator = NULL;
  IREE_RETURN_IF_ERROR(iree_hal_allocator_create_heap(name, host, host, &allocator));
  iree_async_proactor_pool_t* pool = NULL;
  IREE_RETURN_IF_ERROR(
      iree_async_proactor_pool_create(iree_numa_node_count(), NULL,
                                      iree_async_proactor_pool_options_default(), host, &pool));
  iree_hal_device_create_params_t create = iree_hal_device_create_params_default();
  create.proactor_pool = pool;
  iree_status_t status = iree_hal_sync_device_create(name, &params, &create, 1, &loader,
                                                     allocator, host, device);
  iree_async_proactor_pool_release(pool);
  iree_hal_allocator_release(allocator);
  iree_hal_executable_loader_release(loader);
  return status;
}

static iree_status_t push_input(iree_hal_device_t* device, iree_runtime_call_t* call,
                                const tensor_t* tensor, const char* path) {
  void* data = malloc(tensor->bytes);
  FILE* file = fopen(path, "rb");
  bool whole = file && data && fread(data, 1, tensor->bytes, file) == tensor->bytes;
  if (file) fclose(file);
  iree_status_t status =
      whole ? iree_ok_status() : iree_make_status(IREE_STATUS_DATA_LOSS, "cannot read %s", path);
  iree_hal_buffer_view_t* view = NULL;
  if (whole) {
    iree_hal_buffer_params_t params = {.usage = IREE_HAL_BUFFER_USAGE_DEFAULT,
                                       .type = IREE_HAL_MEMORY_TYPE_DEVICE_LOCAL};
    status = iree_hal_buffer_view_allocate_buffer_copy(
        device, iree_hal_device_allocator(device), tensor->rank, tensor->shape, tensor->type,
        IREE_HAL_ENCODING_TYPE_DENSE_ROW_MAJOR, params,
        iree_make_const_byte_span(data, tensor->bytes), &view);
  }
  if (view) status = iree_runtime_call_inputs_push_back_buffer_view(call, view);
  iree_hal_buffer_view_release(view);
  free(data);
  return status;
}

static iree_status_t pop_output(iree_hal_device_t* device, iree_runtime_call_t* call,
                                const tensor_t* tensor, const char* path) {
  iree_hal_buffer_view_t* view = NULL;
  IREE_RETURN_IF_ERROR(iree_runtime_call_outputs_pop_front_buffer_view(call, &view));
  void* data = malloc(tensor->bytes);
  iree_status_t status = iree_hal_device_transfer_d2h(
      device, iree_hal_buffer_view_buffer(view), 0, data, tensor->bytes,
      IREE_HAL_TRANSFER_BUFFER_FLAG_DEFAULT, iree_infinite_timeout());
  FILE* file = iree_status_is_ok(status) ? fopen(path, "wb") : NULL;
  bool whole = file && fwrite(data, 1, tensor->bytes, file) == tensor->bytes;
  if (file) fclose(file);
  if (iree_status_is_ok(status) && !whole)
    status = iree_make_status(IREE_STATUS_DATA_LOSS, "cannot write %s", path);
  iree_hal_buffer_view_release(view);
  free(data);
  return status;
}

static iree_status_t run(char** files) {
  iree_allocator_t host = iree_allocator_system();
  iree_runtime_instance_options_t options;
  iree_runtime_instance_options_initialize(&options);
  iree_runtime_instance_t* instance = NULL;
  IREE_RETURN_IF_ERROR(iree_runtime_instance_create(&options, host, &instance));
  iree_hal_device_t* device = NULL;
  IREE_RETURN_IF_ERROR(make_device(host, &device));
  iree_runtime_session_options_t session_options;
  iree_runtime_session_options_initialize(&session_options);
  iree_runtime_session_t* session = NULL;
  IREE_RETURN_IF_ERROR(iree_runtime_session_create_with_device(instance, &session_options, device,
                                                               host, &session));
  iree_vm_module_t* module = NULL;
  IREE_RETURN_IF_ERROR(CREATE(iree_runtime_instance_vm_instance(instance), host, &module));
  IREE_RETURN_IF_ERROR(iree_runtime_session_append_module(session, module));
  iree_runtime_call_t call;
  IREE_RETURN_IF_ERROR(
      iree_runtime_call_initialize_by_name(session, iree_make_cstring_view(ENTRY), &call));
  for (int i = 0; i < INPUT_COUNT; ++i) {
    IREE_RETURN_IF_ERROR(push_input(device, &call, &INPUTS[i], files[i]));
  }
  IREE_RETURN_IF_ERROR(iree_runtime_call_invoke(&call, /*flags=*/0));
  for (int i = 0; i < OUTPUT_COUNT; ++i) {
    IREE_RETURN_IF_ERROR(pop_output(device, &call, &OUTPUTS[i], files[INPUT_COUNT + i]));
  }
  iree_runtime_call_deinitialize(&call);
  iree_vm_module_release(module);
  iree_runtime_session_release(session);
  iree_hal_device_release(device);
  iree_runtime_instance_release(instance);
  return iree_ok_status();
}

int main(int count, char** arguments) {
  if (count != 1 + INPUT_COUNT + OUTPUT_COUNT) {
    fprintf(stderr, "give %d files of inputs and %d for outputs\n", INPUT_COUNT, OUTPUT_COUNT);
    return 2;
  }
  iree_status_t status = run(arguments + 1);
  if (iree_status_is_ok(status)) return 0;
  iree_status_fprint(stderr, status);
  iree_status_free(status);
  return 1;
}
