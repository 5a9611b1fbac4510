#define QKEXPORT_CPU_ISA isa_amx_split
#define QKEXPORT_SPLIT_PRODUCTS 1
#include "qkexport/cpu/kernels.h"

namespace qkexport::cpu {

extern const KernelTable kAmxSplitKernels = kernel_table("amx", &kAvx512Kernels);

}  // namespace qkexport::cpu
