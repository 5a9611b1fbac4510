// Runs the kernels on the tensors of a case.
#pragma once

#include <string>

#include "case_tensors.h"

namespace qkexport::cases {

// Copies inputs to the device, runs, and copies output and presents back into the buffers of
// `tensors`. An empty string, or what went wrong.
std::string run_on_device(CaseTensors& tensors);

// The run alone, of parameters whose pointers are the device's, in a workspace of its own.
std::string run_parameters(const AttentionParams& params);

}  // namespace qkexport::cases
