#include "log.h"

#include <atomic>
#include <cstdio>

namespace qkexport::trt {
namespace {

std::atomic<nvinfer1::ILoggerFinder*> g_finder{nullptr};

}  // namespace

void set_logger_finder(nvinfer1::ILoggerFinder* finder) { g_finder = finder; }

void log(nvinfer1::ILogger::Severity severity, const char* message) {
  nvinfer1::ILoggerFinder* finder = g_finder;
  nvinfer1::ILogger* logger = finder != nullptr ? finder->findLogger() : nullptr;
  if (logger != nullptr) {
    logger->log(severity, message);
  } else if (severity <= nvinfer1::ILogger::Severity::kERROR) {
    std::fprintf(stderr, "%s\n", message);
  }
}

}  // namespace qkexport::trt
