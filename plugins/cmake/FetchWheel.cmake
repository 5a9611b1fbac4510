# fetch_wheel(NAME REQUIREMENTS_FILE OUTPUT_VARIABLE)
#
# Downloads the wheel that a hash-pinned requirements file names, unpacks it into the build folder
# and sets OUTPUT_VARIABLE to where; empty if that failed, with the reason as a warning.
function(fetch_wheel name requirements output)
  set(folder ${CMAKE_BINARY_DIR}/_wheels/${name})
  set(${output} "" PARENT_SCOPE)
  file(SHA256 ${requirements} pin)
  set(stamp ${folder}/${pin}.stamp)
  if(EXISTS ${stamp})
    set(${output} ${folder}/unpacked PARENT_SCOPE)
    return()
  endif()
  find_package(Python3 COMPONENTS Interpreter)
  if(NOT Python3_Interpreter_FOUND)
    message(WARNING "${name}: no Python interpreter to download the wheel with")
    return()
  endif()
  file(REMOVE_RECURSE ${folder})
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -m pip download --quiet --disable-pip-version-check --no-deps
            --require-hashes --only-binary :all: --dest ${folder} --requirement ${requirements}
    RESULT_VARIABLE result
    ERROR_VARIABLE errors)
  file(GLOB wheels ${folder}/*.whl)
  if(NOT result EQUAL 0 OR NOT wheels)
    message(WARNING "${name}: the wheel could not be downloaded\n${errors}")
    return()
  endif()
  file(ARCHIVE_EXTRACT INPUT ${wheels} DESTINATION ${folder}/unpacked)
  file(TOUCH ${stamp})
  set(${output} ${folder}/unpacked PARENT_SCOPE)
endfunction()
