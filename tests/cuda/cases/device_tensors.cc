#include "device_tensors.h"

#include <cstring>

#include "device_memory.h"

namespace qkexport::cases {

DeviceTensors::DeviceTensors(const CaseTensors& host) : params_(host.params) {
  for (const Buffer& buffer : host.buffers) {
    void* memory = device_allocate(buffer.bytes);
    good_ = good_ && memory != nullptr && copy_to_device(memory, buffer.data.get(), buffer.bytes);
    memory_.push_back(memory);
    void* start = static_cast<unsigned char*>(memory) + buffer.lead;
    for (const std::size_t slot : buffer.slots) {
      std::memcpy(reinterpret_cast<unsigned char*>(&params_) + slot, &start, sizeof start);
    }
  }
}

DeviceTensors::~DeviceTensors() {
  for (void* memory : memory_) device_free(memory);
}

bool DeviceTensors::fetch(CaseTensors& host) const {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    Buffer& buffer = host.buffers[i];
    if (buffer.is_output && !copy_to_host(buffer.data.get(), memory_[i], buffer.bytes)) {
      return false;
    }
  }
  return true;
}

}  // namespace qkexport::cases
