// Replaces the global operator new; a file of its own, so that no caller sees through it.
#include "allocation_count.h"

#include <cstdlib>
#include <new>

namespace {

int64_t g_allocations = 0;

}  // namespace

int64_t plugin_test::allocations() { return g_allocations; }

void* operator new(std::size_t size) {
  ++g_allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
