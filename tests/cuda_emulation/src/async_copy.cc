// Host twin of cp.async: what a thread copies lands when that thread waits for it, not before.
#include <algorithm>
#include <cstring>

#include "block.h"
#include "cuda_emulation/control.h"
#include "cuda_emulation/device.h"

namespace cuda_emulation {
namespace {

constexpr std::size_t kBytes = 16;

bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kBytes == 0;
}

void land(const AsyncCopy& copy) {
  if (copy.valid) {
    std::memcpy(copy.shared, copy.global, kBytes);
    counters().async_bytes += kBytes;
  } else {
    std::memset(copy.shared, 0, kBytes);
  }
}

}  // namespace

void cp_async_16(void* shared, const void* global, bool valid) {
  Block& block = running_block();
  if (!block.owns_shared(shared_address(shared), kBytes))
    block.fail("cp.async writes outside shared memory");
  if (!is_aligned(shared)) block.fail("cp.async target is misaligned");
  if (valid && !is_aligned(global)) block.fail("cp.async source is misaligned");
  std::memset(shared, 0xff, kBytes);
  Thread& self = block.current();
  self.copies.push_back({shared, global, valid, self.commits});
}

void cp_async_commit() { ++running_block().current().commits; }

// Lands every copy of all committed groups but the latest `pending`.
void cp_async_wait(int pending) {
  Thread& self = running_block().current();
  const int landed = self.commits - pending;
  const auto waits = std::stable_partition(self.copies.begin(), self.copies.end(),
                                           [&](const AsyncCopy& c) { return c.group < landed; });
  std::for_each(self.copies.begin(), waits, land);
  self.copies.erase(self.copies.begin(), waits);
}

}  // namespace cuda_emulation
