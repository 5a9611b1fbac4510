// Threads for callers that bring none of their own (the C interface, PyTorch).
#pragma once

#include <cstdint>

#include "qkexport/cpu/attention_cpu.h"

namespace qkexport::cpu {

// A view of the process-wide pool as `workers` threads, the calling one included. Calls from
// several threads at once are safe: the pool serves one of them, the others work alone.
Parallel shared_pool(int64_t workers);

}  // namespace qkexport::cpu
