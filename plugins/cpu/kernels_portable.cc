#define QKEXPORT_CPU_ISA isa_portable
#include "qkexport/cpu/kernels.h"

namespace qkexport::cpu {

extern const KernelTable kPortableKernels = kernel_table("portable");

}  // namespace qkexport::cpu
