# The packages of Debian 12 that the project stands on; `tools/test` installs them.
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(tomlplusplus 3.3 REQUIRED)
find_package(simdjson 3.0 REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_package(Gloo 0.5 REQUIRED CONFIG)

# xxHash 0.8 comes without a package file for CMake.
find_path(FSDPTRAIN_XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(FSDPTRAIN_XXHASH_LIBRARY xxhash REQUIRED)
# Kernels take the header alone, which has all of the code.
add_library(fsdptrain_xxhash_header INTERFACE)
target_include_directories(fsdptrain_xxhash_header SYSTEM INTERFACE ${FSDPTRAIN_XXHASH_INCLUDE})
add_library(fsdptrain_xxhash INTERFACE)
target_link_libraries(fsdptrain_xxhash INTERFACE fsdptrain_xxhash_header
                      ${FSDPTRAIN_XXHASH_LIBRARY})

# oneDNN's own package file asks for OpenCL headers that the library does not need.
find_path(FSDPTRAIN_DNNL_INCLUDE dnnl.h REQUIRED)
find_library(FSDPTRAIN_DNNL_LIBRARY dnnl REQUIRED)
add_library(fsdptrain_dnnl INTERFACE)
target_include_directories(fsdptrain_dnnl SYSTEM INTERFACE ${FSDPTRAIN_DNNL_INCLUDE})
# gomp: oneDNN brings it, and each compute thread sets it to one thread.
target_link_libraries(fsdptrain_dnnl INTERFACE ${FSDPTRAIN_DNNL_LIBRARY} gomp)

if(FSDPTRAIN_CUDA)
  # Both would otherwise end up on the link line.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  # CMake 3.25 does not know the C++20 flag of nvcc 13.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  find_package(CUDAToolkit REQUIRED)
endif()

if(NOT FSDPTRAIN_GEMM MATCHES "^(dnnl|eigen)$")
  message(FATAL_ERROR "FSDPTRAIN_GEMM must be dnnl or eigen, got '${FSDPTRAIN_GEMM}'")
endif()
if(FSDPTRAIN_SANITIZER AND NOT FSDPTRAIN_GEMM STREQUAL "eigen")
  message(FATAL_ERROR "FSDPTRAIN_SANITIZER needs FSDPTRAIN_GEMM=eigen: sanitizers do not see into "
                      "the code that oneDNN generates")
endif()
