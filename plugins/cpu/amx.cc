#include "amx.h"

#if QKEXPORT_AMX && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace qkexport::cpu {

#if QKEXPORT_AMX && defined(__linux__)
namespace {

// Compilers as old as those we support do not know these features by name.
bool processor_has_amx() {
  constexpr unsigned kAmxBFloat16 = 1u << 22, kAmxTile = 1u << 24;  // leaf 7.0, edx
  constexpr unsigned kAvx512BFloat16 = 1u << 5;                     // leaf 7.1, eax
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  if ((edx & kAmxBFloat16) == 0 || (edx & kAmxTile) == 0) return false;
  if (!__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) return false;
  return (eax & kAvx512BFloat16) != 0;
}

bool system_grants_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // asm/prctl.h since Linux 5.16
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool has_amx() {
  static const bool usable = processor_has_amx() && system_grants_tiles();
  return usable;
}
#else
bool has_amx() { return false; }
#endif

}  // namespace qkexport::cpu
