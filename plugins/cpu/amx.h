// Whether the tile registers of Intel AMX may be used.
#pragma once

namespace qkexport::cpu {

// Asks the kernel for them the first time: Linux gives a process the tile registers, which make
// its signal frames 8 KiB larger, only when it asks.
bool has_amx();

}  // namespace qkexport::cpu
