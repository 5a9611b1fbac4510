// Messages to TensorRT's logger, or to stderr while the library has been given none.
#pragma once

#include <NvInferRuntime.h>

#include <exception>

namespace qkexport::trt {

void set_logger_finder(nvinfer1::ILoggerFinder* finder);
void log(nvinfer1::ILogger::Severity severity, const char* message);

inline void log_error(const char* message) { log(nvinfer1::ILogger::Severity::kERROR, message); }

// Runs `function` and returns what it returns. Nothing may be thrown across the boundary: what is
// thrown is logged, and `failed` is returned.
template <typename Result, typename Function>
Result guarded(Result failed, Function function) noexcept {
  try {
    return function();
  } catch (const std::exception& error) {
    log_error(error.what());
  } catch (...) {
    log_error("QKNormAttention failed for an unknown reason.");
  }
  return failed;
}

}  // namespace qkexport::trt
