// The emulated device's memory is host memory of exactly the size asked for.
#include "device_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "cuda_emulation/control.h"
#include "cuda_emulation/device.h"

namespace qkexport::cases {

void* device_allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes == 0 ? 1 : bytes) != 0) return nullptr;
  std::memset(memory, 0xff, bytes);
  return memory;
}

void device_free(void* memory) { std::free(memory); }

void* device_reserve(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void device_release(void* memory, std::size_t bytes) { munmap(memory, bytes); }

bool copy_to_device(void* device, const void* host, std::size_t bytes) {
  std::memcpy(device, host, bytes);
  return true;
}

bool copy_to_host(void* host, const void* device, std::size_t bytes) {
  std::memcpy(host, device, bytes);
  return true;
}

void device_shuffle(uint64_t seed) {
  cuda_emulation::set_options({seed, cuda_emulation::compute_capability()});
}

bool device_synchronize() { return true; }

const char* device_error() { return cuda_emulation::last_failure().c_str(); }

}  // namespace qkexport::cases
