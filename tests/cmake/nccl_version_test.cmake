# What is read of the version in a header of NCCL. Run by cmake -P.
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/FsdptrainNcclVersion.cmake)

function(expect_version expected text)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/nccl_version_test/nccl.h "${text}")
  fsdptrain_nccl_version(${CMAKE_CURRENT_BINARY_DIR}/nccl_version_test/nccl.h version)
  if(NOT version STREQUAL expected)
    message(FATAL_ERROR "expected ${expected}, got ${version} of: ${text}")
  endif()
endfunction()

expect_version(2.28 "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n")
expect_version(2.9 "int x;\n#define NCCL_MAJOR 2\n#define NCCL_SUFFIX \"\"\n#define NCCL_MINOR 9\n")
expect_version(10.3 "#define NCCL_MAJOR 10\n#define NCCL_MINOR 3\n")
# What says nothing is older than all.
expect_version(0.0 "#define NCCL_MAJOR 2\n")
expect_version(0.0 "")
if(NOT "2.9" VERSION_LESS "2.28")
  message(FATAL_ERROR "2.9 must be older than 2.28")
endif()
