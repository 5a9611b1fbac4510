# Sets TensorRTHeaders_INCLUDE_DIR to the folder of NvInferRuntime.h, or to NOTFOUND.
#
# Looked for in TENSORRT_ROOT (CMake or environment), then in the system, then fetched.
include(${CMAKE_CURRENT_LIST_DIR}/FetchWheel.cmake)

find_path(TensorRTHeaders_INCLUDE_DIR NvInferRuntime.h
  HINTS ${TENSORRT_ROOT} ENV TENSORRT_ROOT
  PATH_SUFFIXES include include/x86_64-linux-gnu)

if(NOT TensorRTHeaders_INCLUDE_DIR)
  fetch_wheel(tensorrt-headers ${CMAKE_CURRENT_LIST_DIR}/tensorrt-headers.txt unpacked)
  if(unpacked)
    file(GLOB_RECURSE candidates ${unpacked}/*/NvInferRuntime.h)
    if(candidates)
      list(GET candidates 0 header)
      get_filename_component(folder ${header} DIRECTORY)
      set(TensorRTHeaders_INCLUDE_DIR ${folder} CACHE PATH "" FORCE)
    endif()
  endif()
endif()
