// Host twins of the barriers and warp collectives, in the layouts of the PTX manual.
#include <array>
#include <cstring>

#include "block.h"
#include "cuda_emulation/control.h"
#include "cuda_emulation/device.h"

namespace cuda_emulation {
namespace {

struct ShuffleLane {
  float value;
  int source;
  float result;
};

void execute_shuffle(Warp& warp) {
  for (void* payload : warp.payload) {
    auto* lane = static_cast<ShuffleLane*>(payload);
    lane->result = static_cast<ShuffleLane*>(warp.payload[lane->source % kWarpSize])->value;
  }
}

struct MatrixLane {
  uint32_t* out;
  const unsigned char* row;
  bool transposed;
};

// Lane l names row l % 8 of matrix l / 8.
const unsigned char* matrix_row(const Warp& warp, int matrix, int row) {
  return static_cast<const MatrixLane*>(warp.payload[matrix * 8 + row])->row;
}

uint32_t element(const Warp& warp, int matrix, int row, int column) {
  uint16_t bits;
  std::memcpy(&bits, matrix_row(warp, matrix, row) + 2 * column, sizeof bits);
  return bits;
}

void count_conflicts(const Warp& warp, int matrix) {
  std::array<int, 8> uses{};
  int most = 0;
  for (int row = 0; row < 8; ++row) {
    const auto address = reinterpret_cast<std::uintptr_t>(matrix_row(warp, matrix, row));
    most = std::max(most, ++uses[address / 16 % 8]);
  }
  counters().ldmatrix_conflicts += static_cast<uint64_t>(most - 1);
}

void execute_ldmatrix(Warp& warp) {
  ++counters().ldmatrix;
  for (int matrix = 0; matrix < 4; ++matrix) count_conflicts(warp, matrix);
  for (int l = 0; l < kWarpSize; ++l) {
    const auto* lane = static_cast<const MatrixLane*>(warp.payload[l]);
    const int g = l / 4;
    const int t = 2 * (l % 4);
    for (int matrix = 0; matrix < 4; ++matrix) {
      const uint32_t low =
          lane->transposed ? element(warp, matrix, t, g) : element(warp, matrix, g, t);
      const uint32_t high =
          lane->transposed ? element(warp, matrix, t + 1, g) : element(warp, matrix, g, t + 1);
      lane->out[matrix] = low | (high << 16);
    }
  }
}

struct MmaLane {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

const std::array<float, 65536>& half_table() {
  static const auto* table = [] {
    auto* values = new std::array<float, 65536>;
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      (*values)[bits] = half_to_float(static_cast<uint16_t>(bits));
    }
    return values;
  }();
  return *table;
}

struct Decoder {
  bool is_bfloat16;
  const std::array<float, 65536>& half;
  float operator()(uint32_t bits) const {
    const auto low = static_cast<uint16_t>(bits & 0xffff);
    return is_bfloat16 ? bfloat16_to_float(low) : half[low];
  }
};

// Products are exact in double; the sum of sixteen is rounded once.
void multiply(Warp& warp, bool is_bfloat16) {
  ++counters().mma;
  const Decoder decode{is_bfloat16, half_table()};
  double a[16][16];
  double b[16][8];
  double d[16][8];
  for (int l = 0; l < kWarpSize; ++l) {
    const auto* lane = static_cast<const MmaLane*>(warp.payload[l]);
    const int g = l / 4;
    const int t = 2 * (l % 4);
    for (int e = 0; e < 2; ++e) {
      const int shift = 16 * e;
      a[g][t + e] = decode(lane->a[0] >> shift);
      a[g + 8][t + e] = decode(lane->a[1] >> shift);
      a[g][t + 8 + e] = decode(lane->a[2] >> shift);
      a[g + 8][t + 8 + e] = decode(lane->a[3] >> shift);
      b[t + e][g] = decode(lane->b[0] >> shift);
      b[t + 8 + e][g] = decode(lane->b[1] >> shift);
      d[g][t + e] = lane->d[e];
      d[g + 8][t + e] = lane->d[2 + e];
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int l = 0; l < kWarpSize; ++l) {
    auto* lane = static_cast<MmaLane*>(warp.payload[l]);
    const int g = l / 4;
    const int t = 2 * (l % 4);
    for (int e = 0; e < 2; ++e) {
      lane->d[e] = static_cast<float>(d[g][t + e]);
      lane->d[2 + e] = static_cast<float>(d[g + 8][t + e]);
    }
  }
}

void execute_half_mma(Warp& warp) { multiply(warp, false); }
void execute_bfloat16_mma(Warp& warp) { multiply(warp, true); }

}  // namespace

int thread_index() { return running_block().thread_index(); }
int64_t block_index() { return running_block().block_index(); }
unsigned char* shared_memory() { return running_block().shared(); }

void sync_threads() { running_block().meet_block(Meeting::kSyncThreads, false); }
bool sync_threads_or(bool value) {
  return running_block().meet_block(Meeting::kSyncThreadsOr, value);
}
void sync_warp() { running_block().meet_warp(Meeting::kSyncWarp, nullptr, nullptr); }

float shuffle(float value, int source_lane) {
  ShuffleLane lane{value, source_lane, 0.0f};
  running_block().meet_warp(Meeting::kShuffle, &lane, execute_shuffle);
  return lane.result;
}

uint32_t shared_address(const void* pointer) {
  const auto* byte = static_cast<const unsigned char*>(pointer);
  return static_cast<uint32_t>(byte - running_block().shared());
}

void ldmatrix_x4(uint32_t (&out)[4], uint32_t row, bool transposed) {
  Block& block = running_block();
  if (!block.owns_shared(row, 16)) block.fail("ldmatrix reads outside shared memory");
  if (row % 16 != 0) block.fail("ldmatrix row is misaligned");
  MatrixLane lane{out, block.shared() + row, transposed};
  block.meet_warp(Meeting::kLdmatrix, &lane, execute_ldmatrix);
}

void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool is_bfloat16) {
  MmaLane lane{d, a, b};
  running_block().meet_warp(Meeting::kMma, &lane,
                            is_bfloat16 ? execute_bfloat16_mma : execute_half_mma);
}

float exp2_flushed(float value) {
  const float result = std::exp2(std::fabs(value) < 0x1p-126f ? 0.0f : value);
  return result < 0x1p-126f ? 0.0f : result;
}

}  // namespace cuda_emulation
