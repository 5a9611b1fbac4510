#include "launchers/passes.cuh"

namespace qkexport::cuda {

template Status launch_key_prologue<float, 128>(const KernelArguments&, int64_t, Stream);
template Status launch_key_prologue<float, 512>(const KernelArguments&, int64_t, Stream);
template Status launch_hidden_statistics<float>(const KernelArguments&, int64_t, Stream);
template Status launch_combine<float>(const KernelArguments&, int64_t, Stream);

}  // namespace qkexport::cuda
