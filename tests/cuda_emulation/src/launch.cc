// Launches: blocks in shuffled order, one after the other.
#include <algorithm>
#include <numeric>

#include "block.h"
#include "cuda_emulation/control.h"
#include "cuda_emulation/device.h"

namespace cuda_emulation {
namespace {

Options options;
Counters counts;
std::string failure;

}  // namespace

void set_options(const Options& wanted) { options = wanted; }
const std::string& last_failure() { return failure; }
Counters& counters() { return counts; }
int compute_capability() { return options.compute_capability; }

bool launch(const std::function<void()>& thread, int64_t blocks, int threads,
            std::size_t shared_bytes) {
  std::mt19937_64 random(options.seed + 0x9e3779b97f4a7c15 * ++counts.launches);
  std::vector<int64_t> order(static_cast<std::size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Block block(threads, shared_bytes);
  for (const int64_t index : order) {
    ++counts.blocks;
    if (block.run(index, thread, random())) continue;
    failure = block.failure();
    return false;
  }
  return true;
}

}  // namespace cuda_emulation
