// Device copies of the tensors of a case.
#pragma once

#include <vector>

#include "case_tensors.h"

namespace qkexport::cases {

// Parameters that point at device copies of all buffers. Each copy is as large as its tensor, so
// that an access past its end is seen.
class DeviceTensors {
 public:
  explicit DeviceTensors(const CaseTensors& host);
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  bool good() const { return good_; }  // false: the device has no memory left
  const AttentionParams& params() const { return params_; }

  // Copies what a run has written into the buffers of `host`.
  bool fetch(CaseTensors& host) const;

 private:
  AttentionParams params_;
  std::vector<void*> memory_;
  bool good_ = true;
};

}  // namespace qkexport::cases
