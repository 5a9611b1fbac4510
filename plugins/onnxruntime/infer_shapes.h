#pragma once

#include <onnxruntime_c_api.h>

namespace qkexport::ort {

// Tells the runtime the shapes of the outputs as far as those of the inputs are known.
void infer_shapes(OrtShapeInferContext* context);

}  // namespace qkexport::ort
