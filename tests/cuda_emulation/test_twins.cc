// The host twins of the wrapped instructions against the layouts that the PTX manual draws, and the
// faults that the emulation must report.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_emulation/control.h"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/ldmatrix.cuh"
#include "device/ptx/mma.cuh"
#include "device/ptx/warp.cuh"
#include "expect.h"

namespace {

using namespace qkexport::cuda;
using cuda_emulation::last_failure;

bool launch_warp(const std::function<void()>& kernel, std::size_t shared_bytes = 0) {
  return cuda_emulation::launch(kernel, 1, kWarpSize, shared_bytes);
}

bool reports(const char* words) { return last_failure().find(words) != std::string::npos; }

template <class T>
uint32_t pair_of(int low, int high) {
  return pack_pair<T>(static_cast<float>(low), static_cast<float>(high));
}

// a[i][k] = 3i - k and b[k][j] = k - 2j, small enough to be exact in fp16 and bf16.
int left(int i, int k) { return (3 * i - k) % 13; }
int right(int k, int j) { return (k - 2 * j) % 11; }

template <class T>
void mma_multiplies_matrices_in_the_manuals_layout() {
  EXPECT(launch_warp([] {
    const int g = lane_index() / 4;
    const int t = 2 * (lane_index() % 4);
    const uint32_t a[4] = {pair_of<T>(left(g, t), left(g, t + 1)),
                           pair_of<T>(left(g + 8, t), left(g + 8, t + 1)),
                           pair_of<T>(left(g, t + 8), left(g, t + 9)),
                           pair_of<T>(left(g + 8, t + 8), left(g + 8, t + 9))};
    const uint32_t b[2] = {pair_of<T>(right(t, g), right(t + 1, g)),
                           pair_of<T>(right(t + 8, g), right(t + 9, g))};
    float d[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    mma_m16n8k16<T>(d, a, b);
    for (int e = 0; e < 4; ++e) {
      const int row = g + 8 * (e / 2);
      const int column = t + e % 2;
      int expected = e + 1;
      for (int k = 0; k < 16; ++k) expected += left(row, k) * right(k, column);
      EXPECT(d[e] == static_cast<float>(expected));
    }
  }));
}

// Element (row, column) of matrix m holds 256m + 8 row + column.
void fill_matrices(unsigned char* shared) {
  for (int i = 0; i < 4 * 64; ++i)
    reinterpret_cast<uint16_t*>(shared)[i] = static_cast<uint16_t>(i);
}

void ldmatrix_hands_out_rows_in_the_manuals_layout() {
  EXPECT(launch_warp(
      [] {
        if (lane_index() == 0) fill_matrices(shared_memory());
        sync_warp();
        const uint32_t row = shared_address(shared_memory() + 16 * lane_index());
        uint32_t straight[4], transposed[4];
        ldmatrix_x4(straight, row);
        ldmatrix_x4_transposed(transposed, row);
        const uint32_t g = lane_index() / 4;
        const uint32_t t = 2 * (lane_index() % 4);
        for (uint32_t m = 0; m < 4; ++m) {
          EXPECT((straight[m] & 0xffff) == 64 * m + 8 * g + t);
          EXPECT(straight[m] >> 16 == 64 * m + 8 * g + t + 1);
          EXPECT((transposed[m] & 0xffff) == 64 * m + 8 * t + g);
          EXPECT(transposed[m] >> 16 == 64 * m + 8 * (t + 1) + g);
        }
      },
      4 * 128));
}

void shuffles_exchange_values_between_the_named_lanes() {
  EXPECT(launch_warp([] {
    const auto lane = static_cast<float>(lane_index());
    EXPECT(shuffle_xor(lane, 5) == static_cast<float>(lane_index() ^ 5));
    EXPECT(shuffle(lane, 9) == 9.0f);
    EXPECT(group_sum<32>(lane) == 496.0f);
    EXPECT(group_max<4>(lane) == static_cast<float>(lane_index() / 4 * 4 + 3));
  }));
}

void copies_land_at_their_wait_and_not_before() {
  alignas(16) static float source[2][kWarpSize * 4];
  for (int i = 0; i < kWarpSize * 4; ++i) source[0][i] = source[1][i] = static_cast<float>(i);
  EXPECT(launch_warp(
      [] {
        auto* target = reinterpret_cast<float*>(shared_memory()) + 4 * lane_index();
        cp_async_16(target, source[0] + 4 * lane_index(), true);
        cp_async_commit();
        cp_async_16(target + 4 * kWarpSize, source[1] + 4 * lane_index(), lane_index() < 16);
        cp_async_commit();
        EXPECT(std::isnan(target[0]));
        cp_async_wait<1>();
        EXPECT(target[0] == source[0][4 * lane_index()]);
        EXPECT(std::isnan(target[4 * kWarpSize]));
        cp_async_wait<0>();
        EXPECT(target[4 * kWarpSize] == (lane_index() < 16 ? source[1][4 * lane_index()] : 0.0f));
      },
      2 * kWarpSize * 16));
}

void exp2_flushes_what_the_instruction_flushes() {
  EXPECT(exp2_approximate(-INFINITY) == 0.0f);
  EXPECT(exp2_approximate(-127.0f) == 0.0f);
  EXPECT(exp2_approximate(-126.0f) == 0x1p-126f);
  EXPECT(exp2_approximate(3.0f) == 8.0f);
  EXPECT(std::isnan(exp2_approximate(NAN)));
}

void packed_pairs_with_infinities_and_nans_are_recognized() {
  for (const float low : {0.0f, 1.0f, -65504.0f, 6e-8f}) {
    EXPECT(!has_nonfinite<Half>(pack_pair<Half>(low, -low)));
    EXPECT(!has_nonfinite<BFloat16>(pack_pair<BFloat16>(low * 1e30f, -low)));
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      EXPECT(has_nonfinite<Half>(pack_pair<Half>(low, bad)));
      EXPECT(has_nonfinite<Half>(pack_pair<Half>(bad, low)));
      EXPECT(has_nonfinite<BFloat16>(pack_pair<BFloat16>(low, bad)));
      EXPECT(has_nonfinite<BFloat16>(pack_pair<BFloat16>(bad, low)));
    }
  }
}

// All 65536 values, and halfway points between neighbours, against the compiler's own half.
void half_conversions_round_to_nearest_even() {
#if defined(__FLT16_MAX__)
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = cuda_emulation::half_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    _Float16 expected;
    const auto half = static_cast<uint16_t>(bits);
    std::memcpy(&expected, &half, 2);
    EXPECT(value == static_cast<float>(expected));
    EXPECT(cuda_emulation::float_to_half(value) == half);
    const float next = cuda_emulation::half_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = (value + next) / 2.0f;
    if (!std::isfinite(middle)) continue;
    const _Float16 rounded = static_cast<_Float16>(middle);
    uint16_t rounded_bits;
    std::memcpy(&rounded_bits, &rounded, 2);
    EXPECT(cuda_emulation::float_to_half(middle) == rounded_bits);
  }
#endif
}

void a_barrier_that_some_threads_skip_is_a_deadlock() {
  EXPECT(!launch_warp([] {
    if (lane_index() != 3) sync_warp();
    if (lane_index() == 3) sync_threads();
  }));
  EXPECT(reports("deadlock") || reports("are at"));
}

void lanes_at_different_collectives_are_reported() {
  EXPECT(!launch_warp([] {
    if (lane_index() % 2 == 0) {
      sync_warp();
    } else {
      shuffle(1.0f, 0);
    }
  }));
  EXPECT(reports("sync_warp") && reports("shuffle"));
}

void misaligned_and_outside_addresses_are_reported() {
  EXPECT(!launch_warp(
      [] {
        uint32_t out[4];
        ldmatrix_x4(out, 16 * lane_index() + 2);
      },
      1024));
  EXPECT(reports("ldmatrix row is misaligned"));
  EXPECT(!launch_warp(
      [] {
        uint32_t out[4];
        ldmatrix_x4(out, 16 * lane_index());
      },
      16 * kWarpSize - 2));
  EXPECT(reports("ldmatrix reads outside shared memory"));
  alignas(16) static unsigned char global[1024];
  EXPECT(!launch_warp([] { cp_async_16(shared_memory(), global + 8, true); }, 1024));
  EXPECT(reports("cp.async source is misaligned"));
  EXPECT(!launch_warp([] { cp_async_16(shared_memory() + 1024, global, true); }, 1024));
  EXPECT(reports("cp.async writes outside shared memory"));
}

void a_copy_that_nobody_waits_for_is_reported() {
  alignas(16) static unsigned char global[16];
  EXPECT(!launch_warp([] { cp_async_16(shared_memory() + 16 * lane_index(), global, true); }, 512));
  EXPECT(reports("never waited for"));
}

}  // namespace

int main() {
  RUN(mma_multiplies_matrices_in_the_manuals_layout<Half>);
  RUN(mma_multiplies_matrices_in_the_manuals_layout<BFloat16>);
  RUN(ldmatrix_hands_out_rows_in_the_manuals_layout);
  RUN(shuffles_exchange_values_between_the_named_lanes);
  RUN(copies_land_at_their_wait_and_not_before);
  RUN(exp2_flushes_what_the_instruction_flushes);
  RUN(packed_pairs_with_infinities_and_nans_are_recognized);
  RUN(half_conversions_round_to_nearest_even);
  RUN(a_barrier_that_some_threads_skip_is_a_deadlock);
  RUN(lanes_at_different_collectives_are_reported);
  RUN(misaligned_and_outside_addresses_are_reported);
  RUN(a_copy_that_nobody_waits_for_is_reported);
  return failed_expectations() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
