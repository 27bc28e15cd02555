# What is of CUDA is in no library, but in sets of objects of which every program is linked with
# exactly one. The libraries refer to what a set defines, so a program without one does not link.
#
#   none  every entry raises DeviceError
#   real  compiled by nvcc and against the CUDA runtime; with FSDPTRAIN_CUDA only
#   fake  the same kernels as C++, run on the CPU under checks; for tests
file(GLOB FSDPTRAIN_CUDA_ROOTS /usr/local/cuda*/include)
find_package(CUDAToolkit QUIET)
# Host code of CUDA is compiled against NVIDIA's headers alone, where they are found.
find_path(FSDPTRAIN_CUDA_INCLUDE cuda_runtime_api.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_PATH ENV CUDA_HOME ${FSDPTRAIN_CUDA_ROOTS}
  PATH_SUFFIXES include)
find_path(FSDPTRAIN_NCCL_INCLUDE nccl.h
  HINTS ENV NCCL_HOME ${FSDPTRAIN_CUDA_INCLUDE} PATH_SUFFIXES include)
set(FSDPTRAIN_NCCL_NEEDED 2.28)
include(${CMAKE_CURRENT_LIST_DIR}/FsdptrainNcclVersion.cmake)

if(FSDPTRAIN_NCCL_INCLUDE)
  fsdptrain_nccl_version(${FSDPTRAIN_NCCL_INCLUDE}/nccl.h nccl_version)
  if(nccl_version VERSION_LESS FSDPTRAIN_NCCL_NEEDED)
    message(STATUS "${FSDPTRAIN_NCCL_INCLUDE}/nccl.h is NCCL ${nccl_version}, not "
                   "${FSDPTRAIN_NCCL_NEEDED} or later: taken as absent")
    # Not what the cache has: another header may be there next time.
    set(FSDPTRAIN_NCCL_INCLUDE "")
  endif()
endif()

add_library(fsdptrain_cuda_none INTERFACE)
add_library(fsdptrain_cuda_fake INTERFACE)
set(FSDPTRAIN_CUDA_SET none)
if(FSDPTRAIN_CUDA)
  add_library(fsdptrain_cuda_real INTERFACE)
  find_library(FSDPTRAIN_NCCL_LIBRARY nccl
    HINTS ENV NCCL_HOME ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  if(NOT FSDPTRAIN_NCCL_INCLUDE OR NOT FSDPTRAIN_NCCL_LIBRARY)
    message(FATAL_ERROR "FSDPTRAIN_CUDA needs NCCL ${FSDPTRAIN_NCCL_NEEDED} or later: nccl.h and "
                        "libnccl were not found; set NCCL_HOME in the environment")
  endif()
  target_link_libraries(fsdptrain_cuda_real INTERFACE CUDA::cudart ${FSDPTRAIN_NCCL_LIBRARY})
  set(FSDPTRAIN_CUDA_SET real)
endif()

# fsdptrain_cuda_objects(<set> <object library>...) adds objects to a set, and the libraries that
# they need.
function(fsdptrain_cuda_objects set)
  foreach(library IN LISTS ARGN)
    target_sources(fsdptrain_cuda_${set} INTERFACE $<TARGET_OBJECTS:${library}>)
    get_target_property(needed ${library} LINK_LIBRARIES)
    list(FILTER needed INCLUDE REGEX "^fsdptrain::")
    target_link_libraries(fsdptrain_cuda_${set} INTERFACE ${needed})
  endforeach()
endfunction()

# fsdptrain_program(<target> <set>) links an executable with a set; FSDPTRAIN_CUDA_SET is that of
# the preset. The global properties FSDPTRAIN_PROGRAMS_<set> list them.
function(fsdptrain_program target set)
  if(NOT TARGET fsdptrain_cuda_${set})
    message(FATAL_ERROR "${target}: there is no set '${set}' of CUDA objects in this build")
  endif()
  target_link_libraries(${target} PRIVATE fsdptrain_cuda_${set})
  set_property(GLOBAL APPEND PROPERTY FSDPTRAIN_PROGRAMS_${set} ${target})
endfunction()

# fsdptrain_cuda_kernels(<dir> <file.cu>...) names the kernels. nvcc compiles them here; <dir>
# compiles the same files as C++, because a file has one language in a folder.
macro(fsdptrain_cuda_kernels dir)
  set(FSDPTRAIN_CUDA_KERNELS ${ARGN})
  if(FSDPTRAIN_CUDA)
    list(TRANSFORM FSDPTRAIN_CUDA_KERNELS PREPEND ${dir}/ OUTPUT_VARIABLE kernels)
    add_library(fsdptrain_kernels_cuda OBJECT ${kernels} ${dir}/real.cpp)
    target_link_libraries(fsdptrain_kernels_cuda PRIVATE fsdptrain_options fsdptrain::base)
    target_compile_features(fsdptrain_kernels_cuda PRIVATE cxx_std_20)
    # fmt 9 takes nvcc for a compiler without constexpr.
    set_source_files_properties(${kernels} PROPERTIES
      COMPILE_OPTIONS "-std=c++20;-DFMT_USE_CONSTEXPR=1")
    fsdptrain_cuda_objects(real fsdptrain_kernels_cuda)
  endif()
endmacro()

# The variant whose flags the kernels as C++ of the fake are compiled with: their bits are those of
# the CPU kernels of that variant.
include(CheckCXXSourceRuns)
check_cxx_source_runs("int main() { return __builtin_cpu_supports(\"avx2\") && \
                                           __builtin_cpu_supports(\"fma\") ? 0 : 1; }"
                      FSDPTRAIN_HOST_HAS_AVX2)
if(FSDPTRAIN_HOST_HAS_AVX2)
  set(FSDPTRAIN_EMULATED_ISA avx2)
else()
  set(FSDPTRAIN_EMULATED_ISA baseline)
endif()
