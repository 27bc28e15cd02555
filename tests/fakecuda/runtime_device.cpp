#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tests/fakecuda/call.h"

// Devices and errors.
namespace fsdptrain::fakecuda {
namespace {

struct ErrorName {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr std::array kErrors = {
    ErrorName{cudaSuccess, "cudaSuccess", "no error"},
    ErrorName{cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    ErrorName{cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    ErrorName{cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
              "invalid copy direction for memcpy"},
    ErrorName{cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    ErrorName{cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    ErrorName{cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
              "invalid resource handle"},
    ErrorName{cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    ErrorName{cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
              "an illegal memory access was encountered"},
    ErrorName{cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
              "part or all of the requested memory range is already mapped"},
    ErrorName{cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
              "pointer does not correspond to a registered memory region"},
    ErrorName{cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout",
              "the launch timed out and was terminated"},
    ErrorName{cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
};

const ErrorName* find_error(cudaError_t error) {
  for (const ErrorName& known : kErrors) {
    if (known.error == error) {
      return &known;
    }
  }
  return nullptr;
}

bool has_device(const Machine& machine, int device) {
  return device >= 0 && device < machine.options.num_devices;
}

cudaError_t last_error(const char* name, bool resets) {
  return cuda_query(name, [&](Machine& machine, Call&) {
    ThreadState& thread = this_thread(machine);
    const cudaError_t sticky = machine.devices[static_cast<std::size_t>(thread.device)].error;
    const cudaError_t error = sticky != cudaSuccess ? sticky : thread.last_error;
    if (resets) {
      thread.last_error = cudaSuccess;
    }
    return error;
  });
}

}  // namespace
}  // namespace fsdptrain::fakecuda

using fsdptrain::fakecuda::Call;
using fsdptrain::fakecuda::cuda_call;
using fsdptrain::fakecuda::cuda_query;
using fsdptrain::fakecuda::Machine;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return cuda_query("cudaGetDeviceCount", [&](Machine& machine, Call&) {
    *count = machine.options.num_devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return cuda_query("cudaSetDevice", [&](Machine& machine, Call&) {
    if (!fsdptrain::fakecuda::has_device(machine, device)) {
      fsdptrain::fakecuda::this_thread(machine).last_error = cudaErrorInvalidDevice;
      return cudaErrorInvalidDevice;
    }
    fsdptrain::fakecuda::this_thread(machine).device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return cuda_query("cudaGetDevice", [&](Machine& machine, Call&) {
    *device = fsdptrain::fakecuda::this_thread(machine).device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return cuda_query("cudaGetDeviceProperties", [&](Machine& machine, Call&) {
    if (!fsdptrain::fakecuda::has_device(machine, device)) {
      return cudaErrorInvalidDevice;
    }
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "fake CUDA device %d", device);
    properties->totalGlobalMem = machine.options.device_memory;
    properties->major = 9;
    properties->minor = 0;
    properties->multiProcessorCount = 4;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = std::size_t{48} << 10;
    properties->sharedMemPerBlockOptin = std::size_t{227} << 10;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties = {};
  const cudaError_t result = cudaGetDeviceProperties(&properties, device);
  if (result != cudaSuccess) {
    return result;
  }
  // NOLINTNEXTLINE(clang-diagnostic-switch-enum): those that the project asks for.
  if (attribute == cudaDevAttrComputeCapabilityMajor) {
    *value = properties.major;
  } else if (attribute == cudaDevAttrComputeCapabilityMinor) {
    *value = properties.minor;
  } else if (attribute == cudaDevAttrMultiProcessorCount) {
    *value = properties.multiProcessorCount;
  } else if (attribute == cudaDevAttrWarpSize) {
    *value = properties.warpSize;
  } else if (attribute == cudaDevAttrMaxThreadsPerBlock) {
    *value = properties.maxThreadsPerBlock;
  } else if (attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin) {
    *value = static_cast<int>(properties.sharedMemPerBlockOptin);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return fsdptrain::fakecuda::last_error("cudaGetLastError", true);
}

cudaError_t cudaPeekAtLastError() {
  return fsdptrain::fakecuda::last_error("cudaPeekAtLastError", false);
}

const char* cudaGetErrorName(cudaError_t error) {
  const auto* known = fsdptrain::fakecuda::find_error(error);
  return known != nullptr ? known->name : "cudaErrorUnknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  const auto* known = fsdptrain::fakecuda::find_error(error);
  return known != nullptr ? known->text : "unrecognized error code";
}

cudaError_t cudaDeviceSynchronize() {
  return cuda_call("cudaDeviceSynchronize", [](Machine& machine, Call& call) {
    return machine.synchronize_device(call, fsdptrain::fakecuda::this_thread(machine).device);
  });
}

}  // extern "C"
