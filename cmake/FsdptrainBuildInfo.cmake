# fsdptrain_build_info(<target>) gives <target> the source that says what it was built from. It is
# written again at each build, by this file in script mode, because a commit changes no file that
# CMake watches; a commit that did not change rebuilds nothing.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(fsdptrain_build_info target)
    set(output ${PROJECT_BINARY_DIR}/build_info.cpp)
    find_package(Git QUIET)
    add_custom_target(${target}_build_info
      COMMAND ${CMAKE_COMMAND}
        -D GIT=${GIT_EXECUTABLE}
        -D SOURCE_DIR=${PROJECT_SOURCE_DIR}
        -D OUTPUT=${output}
        -D FSDPTRAIN_VERSION=${PROJECT_VERSION}
        -D "FSDPTRAIN_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
        -D FSDPTRAIN_BUILD_TYPE=$<CONFIG>
        -D FSDPTRAIN_GEMM=${FSDPTRAIN_GEMM}
        -P ${PROJECT_SOURCE_DIR}/cmake/FsdptrainBuildInfo.cmake
      BYPRODUCTS ${output}
      COMMENT ""
      VERBATIM)
    target_sources(${target} PRIVATE ${output})
    add_dependencies(${target} ${target}_build_info)
  endfunction()
  return()
endif()

set(FSDPTRAIN_COMMIT unknown)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --show-toplevel
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH ${SOURCE_DIR} source)
  # A source archive inside a foreign repository has no commit of its own.
  if(top STREQUAL source)
    execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} describe --always --dirty --exclude * --abbrev=12
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(commit)
      set(FSDPTRAIN_COMMIT ${commit})
    endif()
  endif()
endif()
configure_file(${SOURCE_DIR}/tools/build_info.cpp.in ${OUTPUT} @ONLY)
