#define QKEXPORT_CPU_ISA isa_amx
#include "qkexport/cpu/kernels.h"

namespace qkexport::cpu {

extern const KernelTable kAmxSplitKernels;
extern const KernelTable kAmxKernels = kernel_table("amx", &kAmxSplitKernels);

}  // namespace qkexport::cpu
