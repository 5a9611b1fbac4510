// The vector type of the instruction set that this translation unit is compiled for.
//
// Every header of this folder is compiled once for each instruction set. Each translation unit
// defines QKEXPORT_CPU_ISA, and all names lie in that inline namespace: two sets must not share
// a symbol, or the linker could keep the copy that the processor cannot execute.
#pragma once

#ifndef QKEXPORT_CPU_ISA
#error \
    "QKEXPORT_CPU_ISA must name the instruction set: isa_portable, isa_avx2, isa_avx512 or isa_amx"
#endif

#if defined(__AVX512F__)
#include "qkexport/cpu/vec_avx512.h"
#elif defined(__AVX2__)
#include "qkexport/cpu/vec_avx2.h"
#else
#include "qkexport/cpu/vec_portable.h"
#endif
