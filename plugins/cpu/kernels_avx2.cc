#define QKEXPORT_CPU_ISA isa_avx2
#include "qkexport/cpu/kernels.h"

namespace qkexport::cpu {

extern const KernelTable kAvx2Kernels = kernel_table("avx2");

}  // namespace qkexport::cpu
