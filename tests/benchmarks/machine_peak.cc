// Prints what this machine can do on N threads: float32 multiply-adds in GF/s, reads in GB/s, and
// bfloat16 multiply-adds of AMX tiles in GF/s (0 without them). A second argument "cpu" counts the
// CPU time of one thread: right on a machine that others use too.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

#if defined(__AMX_BF16__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define HAS_TILES 1
#endif

namespace {

constexpr int kChains = 12;
constexpr int kWidth = 16;
typedef float Vec __attribute__((vector_size(kWidth * sizeof(float))));
typedef float Unaligned __attribute__((vector_size(kWidth * sizeof(float)), aligned(4)));

bool count_cpu_time = false;

double seconds(const std::function<void()>& work) {
  if (count_cpu_time) {
    const std::clock_t begin = std::clock();
    work();
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Enough independent chains to hide the latency of a multiply-add.
float multiply_add(long steps) {
  // Chains that started alike would be computed once.
  Vec x0 = {}, x1 = x0 + 1, x2 = x0 + 2, x3 = x0 + 3, x4 = x0 + 4, x5 = x0 + 5;
  Vec x6 = x0 + 6, x7 = x0 + 7, x8 = x0 + 8, x9 = x0 + 9, x10 = x0 + 10, x11 = x0 + 11;
  const Vec m = Vec{} + 0.999f, a = Vec{} + 0.001f;
  for (long i = 0; i < steps; ++i) {
    x0 = x0 * m + a, x1 = x1 * m + a, x2 = x2 * m + a, x3 = x3 * m + a;
    x4 = x4 * m + a, x5 = x5 * m + a, x6 = x6 * m + a, x7 = x7 * m + a;
    x8 = x8 * m + a, x9 = x9 * m + a, x10 = x10 * m + a, x11 = x11 * m + a;
  }
  const Vec sum = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + x10 + x11;
  return sum[0];
}

float read_all(const std::vector<float>& data) {
  Vec sums[8] = {};
  const Unaligned* vectors = reinterpret_cast<const Unaligned*>(data.data());
  const size_t count = data.size() / kWidth / 8 * 8;
  for (size_t i = 0; i < count; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += vectors[i + j];
  }
  float total = 0.0f;
  for (const Vec& sum : sums) total += sum[0];
  return total;
}

#if HAS_TILES
constexpr double kTileFlops = 2.0 * 16 * 16 * 32;

bool tiles_are_granted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Four accumulators; the operands stay in their registers.
void multiply_tiles(long steps) {
  struct alignas(64) Shape {
    unsigned char palette = 1, start_row = 0, reserved[14] = {};
    unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  const Shape shape;
  __asm__ volatile("" ::"m"(shape));
  _tile_loadconfig(&shape);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (long i = 0; i < steps; i += 4) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}
#else
constexpr double kTileFlops = 0.0;
bool tiles_are_granted() { return false; }
void multiply_tiles(long) {}
#endif

double on_threads(int threads, const std::function<void(int)>& work) {
  return seconds([&] {
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) running.emplace_back(work, i);
    for (std::thread& thread : running) thread.join();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  count_cpu_time = argc > 2 && std::strcmp(argv[2], "cpu") == 0;
  constexpr long kSteps = 10000000;
  std::vector<std::vector<float>> data(static_cast<size_t>(threads),
                                       std::vector<float>(size_t{32} << 20, 1.0f));
  volatile float sink = 0.0f;
  const bool tiles = tiles_are_granted();
  constexpr long kTileSteps = 4000000;
  double flops = 0.0, bytes = 0.0, tile_flops = 0.0;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const double compute = on_threads(threads, [&](int) { sink = multiply_add(kSteps); });
    const double read = on_threads(threads, [&](int i) { sink = read_all(data[i]); });
    const double f = 2.0 * kChains * kWidth * kSteps * threads / compute / 1e9;
    const double b = sizeof(float) * double(data[0].size()) * threads / read / 1e9;
    flops = f > flops ? f : flops;
    bytes = b > bytes ? b : bytes;
    if (!tiles) continue;
    const double multiply = on_threads(threads, [&](int) { multiply_tiles(kTileSteps); });
    const double t = kTileFlops * kTileSteps * threads / multiply / 1e9;
    tile_flops = t > tile_flops ? t : tile_flops;
  }
  std::printf("%.1f %.1f %.1f\n", flops, bytes, tile_flops);
}
