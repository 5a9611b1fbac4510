// Memory of the device under test: the host's own in the emulation, CUDA's otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qkexport::cases {

// Null where nothing is left. Memory is aligned as cudaMalloc aligns it.
void* device_allocate(std::size_t bytes);
void device_free(void* memory);

// Memory of which little is going to be touched, as large as a device may have it. Not filled.
void* device_reserve(std::size_t bytes);
void device_release(void* memory, std::size_t bytes);

bool copy_to_device(void* device, const void* host, std::size_t bytes);
bool copy_to_host(void* host, const void* device, std::size_t bytes);

// Draws a new order of blocks and threads, where the device lets itself be told.
void device_shuffle(uint64_t seed);

// Waits for all launches; false where one of them failed.
bool device_synchronize();

// What the device reported last, for messages.
const char* device_error();

}  // namespace qkexport::cases
