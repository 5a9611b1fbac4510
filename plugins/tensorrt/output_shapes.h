// Shapes of the outputs as expressions over the shapes of the inputs.
#pragma once

#include <NvInferRuntime.h>

#include "qkexport/op/roles.h"
#include "qkexport/op/spec.h"

namespace qkexport::trt {

// Fills `outputs[0, num_outputs)`. Throws op::Refusal where a rank is not one of the contract's.
void write_output_shapes(const op::AttentionSpec& spec, const op::InputPositions& positions,
                         const nvinfer1::DimsExprs* inputs, nvinfer1::DimsExprs* outputs,
                         int num_outputs, nvinfer1::IExprBuilder& builder);

}  // namespace qkexport::trt
