# Sets OnnxRuntimeHeaders_INCLUDE_DIR to the folder of onnxruntime_c_api.h, or to NOTFOUND.
#
# Looked for in ONNXRUNTIME_ROOT (CMake or environment), then in the system, then fetched.
include(${CMAKE_CURRENT_LIST_DIR}/FetchWheel.cmake)

set(suffixes include include/onnxruntime include/onnxruntime/core/session)
find_path(OnnxRuntimeHeaders_INCLUDE_DIR onnxruntime_c_api.h
  HINTS ${ONNXRUNTIME_ROOT} ENV ONNXRUNTIME_ROOT
  PATH_SUFFIXES ${suffixes})

if(NOT OnnxRuntimeHeaders_INCLUDE_DIR)
  fetch_wheel(onnxruntime-headers ${CMAKE_CURRENT_LIST_DIR}/onnxruntime-headers.txt unpacked)
  if(unpacked)
    file(GLOB_RECURSE candidates ${unpacked}/*/onnxruntime_c_api.h)
    if(candidates)
      list(GET candidates 0 header)
      get_filename_component(folder ${header} DIRECTORY)
      set(OnnxRuntimeHeaders_INCLUDE_DIR ${folder} CACHE PATH "" FORCE)
    endif()
  endif()
endif()
