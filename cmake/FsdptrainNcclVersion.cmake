# fsdptrain_nccl_version(<header> <variable>): as in "2.28"; "0.0" where the header does not say.
function(fsdptrain_nccl_version header variable)
  set(version 0.0)
  file(STRINGS ${header} lines REGEX "^#define NCCL_(MAJOR|MINOR) [0-9]+")
  if("${lines}" MATCHES "NCCL_MAJOR ([0-9]+).*NCCL_MINOR ([0-9]+)")
    set(version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
  endif()
  set(${variable} ${version} PARENT_SCOPE)
endfunction()
