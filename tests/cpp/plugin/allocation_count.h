// How often this program has asked for memory.
#pragma once

#include <cstdint>

namespace plugin_test {

int64_t allocations();

}  // namespace plugin_test
