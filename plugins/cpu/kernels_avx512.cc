#define QKEXPORT_CPU_ISA isa_avx512
#include "qkexport/cpu/kernels.h"

namespace qkexport::cpu {

extern const KernelTable kAvx512Kernels = kernel_table("avx512");

}  // namespace qkexport::cpu
