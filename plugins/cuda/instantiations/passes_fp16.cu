#include "launchers/passes.cuh"

namespace qkexport::cuda {

template Status launch_key_prologue<Half, 128>(const KernelArguments&, int64_t, Stream);
template Status launch_key_prologue<Half, 512>(const KernelArguments&, int64_t, Stream);
template Status launch_hidden_statistics<Half>(const KernelArguments&, int64_t, Stream);
template Status launch_combine<Half>(const KernelArguments&, int64_t, Stream);

}  // namespace qkexport::cuda
