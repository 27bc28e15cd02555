# Warnings and sanitizers: private to our own targets, never exported.
add_library(fsdptrain_options INTERFACE)
target_compile_options(fsdptrain_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wswitch-enum>
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra -fmad=false>
  $<$<AND:$<BOOL:${FSDPTRAIN_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)
foreach(kind IN LISTS FSDPTRAIN_SANITIZER)
  target_compile_options(fsdptrain_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${kind}>)
  target_link_options(fsdptrain_options INTERFACE -fsanitize=${kind})
endforeach()
if("undefined" IN_LIST FSDPTRAIN_SANITIZER)
  target_compile_options(fsdptrain_options INTERFACE -fno-sanitize-recover=undefined)
endif()
# Of a report one reads lines, and half of the time of such a build is the compiler's for headers of
# others. The presets that people and clang-tidy work in have no precompiled headers, so that each
# file must include what it needs.
if(FSDPTRAIN_SANITIZER)
  target_compile_options(fsdptrain_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-g1>)
endif()

# fsdptrain_precompile(<target> <of> <header>...): with a sanitizer, headers that most sources of the
# target include; compiled for the first target that names <of>, and taken by the others.
function(fsdptrain_precompile target of)
  if(NOT FSDPTRAIN_SANITIZER)
    return()
  endif()
  set(holder fsdptrain_precompiled_${of})
  if(NOT TARGET ${holder})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled_${of}.cpp CONTENT "")
    add_library(${holder} OBJECT ${PROJECT_BINARY_DIR}/precompiled_${of}.cpp)
    target_link_libraries(${holder} PRIVATE fsdptrain_options fmt::fmt nlohmann_json::nlohmann_json)
    target_compile_features(${holder} PRIVATE cxx_std_20)
    target_precompile_headers(${holder} PRIVATE ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${holder})
endfunction()
# g++ 12 does not compile the intrinsics behind Eigen's headers once there is a precompiled one.
set_source_files_properties(kernels/cpu/gemm_kernel_eigen.cpp tools/library_versions.cpp PROPERTIES
  SKIP_PRECOMPILE_HEADERS ON)
set(FSDPTRAIN_COMMON_HEADERS <algorithm> <chrono> <cstdint> <filesystem> <functional> <map> <memory>
    <optional> <set> <span> <string> <thread> <vector> <fmt/format.h>)

# The ISA variants and what they are compiled with; Isa in runtime/base/isa.h lists the same.
set(FSDPTRAIN_ISA_VARIANTS baseline avx2 avx512)
set(FSDPTRAIN_ISA_ENUM_baseline Baseline)
set(FSDPTRAIN_ISA_FLAGS_baseline "")
set(FSDPTRAIN_ISA_ENUM_avx2 Avx2)
set(FSDPTRAIN_ISA_FLAGS_avx2 -mavx2 -mfma)
set(FSDPTRAIN_ISA_ENUM_avx512 Avx512)
set(FSDPTRAIN_ISA_FLAGS_avx512 -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl
    -mprefer-vector-width=512)
# The same optimisation in every preset. Neither flag changes a result: no errno is read and no
# floating-point trap is ever enabled.
set(FSDPTRAIN_KERNEL_FLAGS -O2 -ftree-vectorize -fvect-cost-model=dynamic
    -fno-math-errno -fno-trapping-math)

# fsdptrain_library(<name> DIR <dir> [SOURCES ...] [ISA_SOURCES ...] [DEPENDS ...] [PACKAGES ...])
#
# Adds fsdptrain::<name>. DEPENDS is the whole list of fsdptrain libraries that the folder may
# include. ISA_SOURCES are compiled once per ISA variant. What is of CUDA is in no library
# (FsdptrainCuda.cmake). The global property FSDPTRAIN_LIBRARIES lists all.
function(fsdptrain_library name)
  cmake_parse_arguments(arg "" "DIR" "SOURCES;ISA_SOURCES;DEPENDS;PACKAGES" ${ARGN})
  set(target fsdptrain_${name})
  foreach(list SOURCES ISA_SOURCES)
    list(TRANSFORM arg_${list} PREPEND ${arg_DIR}/)
  endforeach()
  list(TRANSFORM arg_DEPENDS PREPEND fsdptrain::)

  add_library(${target} STATIC ${arg_SOURCES})
  add_library(fsdptrain::${name} ALIAS ${target})
  set_property(GLOBAL APPEND PROPERTY FSDPTRAIN_LIBRARIES ${target})
  target_link_libraries(${target} PRIVATE fsdptrain_options PUBLIC ${arg_DEPENDS} ${arg_PACKAGES})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  fsdptrain_precompile(${target} libraries ${FSDPTRAIN_COMMON_HEADERS})

  if(arg_ISA_SOURCES)
    foreach(isa IN LISTS FSDPTRAIN_ISA_VARIANTS)
      set(variant ${target}_${isa})
      add_library(${variant} OBJECT ${arg_ISA_SOURCES})
      target_link_libraries(${variant} PRIVATE fsdptrain_options ${arg_DEPENDS} ${arg_PACKAGES})
      target_include_directories(${variant} PRIVATE ${PROJECT_SOURCE_DIR})
      target_compile_features(${variant} PRIVATE cxx_std_20)
      target_compile_options(${variant} PRIVATE ${FSDPTRAIN_KERNEL_FLAGS}
                             ${FSDPTRAIN_ISA_FLAGS_${isa}})
      target_compile_definitions(${variant} PRIVATE FSDPTRAIN_VARIANT=${isa}
                                 FSDPTRAIN_VARIANT_ISA=${FSDPTRAIN_ISA_ENUM_${isa}})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${variant}>)
    endforeach()
  endif()
endfunction()
