// The tensors of a case in host memory, and the AttentionParams that point at them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "attention_case.h"

namespace qkexport::cases {

struct FreeBuffer {
  void operator()(unsigned char* memory) const { std::free(memory); }
};

// Exactly as many bytes as the tensor's last element needs, so that a sanitizer sees the first
// byte past it. `slots` are the pointers of AttentionParams that point here, as byte offsets into
// the struct; `lead` bytes at the start make the tensor misaligned.
struct Buffer {
  std::unique_ptr<unsigned char, FreeBuffer> data;
  std::size_t bytes = 0;
  std::size_t lead = 0;
  std::vector<std::size_t> slots;
  bool is_output = false;
};

struct CaseTensors {
  AttentionParams params{};  // points at the buffers
  std::vector<Buffer> buffers;
};

CaseTensors make_tensors(const AttentionCase& c);

// Elements of host tensors of any type.
double load(const void* data, DataType dtype, int64_t index);
void store(void* data, DataType dtype, int64_t index, double value);
int64_t size_of(DataType dtype);

// Nearest value of the type.
double round_to(DataType dtype, double value);

}  // namespace qkexport::cases
