// How a test steers the emulation and what it learns from it.
#pragma once

#include <cstdint>
#include <string>

namespace cuda_emulation {

struct Options {
  uint64_t seed = 0;            // order of blocks, warps and threads
  int compute_capability = 80;  // what the launcher is told
};

void set_options(const Options& options);

// What stopped the last launch that returned false: a deadlock, threads in different barriers, a
// misaligned or out-of-bounds access.
const std::string& last_failure();

// Counts since the last reset, for tests of the work that kernels do.
struct Counters {
  uint64_t launches = 0;
  uint64_t blocks = 0;
  uint64_t mma = 0;
  uint64_t ldmatrix = 0;
  uint64_t ldmatrix_conflicts = 0;  // extra shared-memory cycles beyond one for each matrix
  uint64_t async_bytes = 0;
  uint64_t barriers = 0;
};
Counters& counters();

}  // namespace cuda_emulation
