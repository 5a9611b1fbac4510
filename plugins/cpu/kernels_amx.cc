#define QKEXPORT_CPU_ISA isa_amx
#include "qkexport/cpu/kernels.h"

namespace qkexport::cpu {

extern const KernelTable kAvx512Kernels;
extern const KernelTable kAmxKernels = kernel_table("amx", &kAvx512Kernels);

}  // namespace qkexport::cpu
