// What TensorRT's headers need of the CUDA runtime, for building the emulated plugin on a machine
// that has no CUDA. The real header wins wherever there is one.
#pragma once

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
