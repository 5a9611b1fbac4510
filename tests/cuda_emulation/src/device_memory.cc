// The emulated device's memory is host memory of exactly the size asked for.
#include "device_memory.h"

#include <cstdlib>
#include <cstring>

#include "cuda_emulation/control.h"

namespace qkexport::cases {

void* device_allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes == 0 ? 1 : bytes) != 0) return nullptr;
  std::memset(memory, 0xff, bytes);
  return memory;
}

void device_free(void* memory) { std::free(memory); }

bool copy_to_device(void* device, const void* host, std::size_t bytes) {
  std::memcpy(device, host, bytes);
  return true;
}

bool copy_to_host(void* host, const void* device, std::size_t bytes) {
  std::memcpy(host, device, bytes);
  return true;
}

void device_shuffle(uint64_t seed) { cuda_emulation::set_options({seed, 80}); }

bool device_synchronize() { return true; }

const char* device_error() { return cuda_emulation::last_failure().c_str(); }

}  // namespace qkexport::cases
