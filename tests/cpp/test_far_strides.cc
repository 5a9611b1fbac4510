// Tensors spread over more elements than 32 bits count: views of a region of which little is
// touched.
#include <sys/mman.h>

#include "problem.h"
#include "testing.h"

namespace {

using namespace testing;

constexpr int64_t kFarElements = (int64_t{1} << 31) + 64;

// Address space without memory behind it.
class Region {
 public:
  explicit Region(size_t bytes)
      : bytes_(bytes),
        memory_(static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~Region() { munmap(memory_, bytes_); }
  Region(const Region&) = delete;
  char* memory() const { return memory_; }

 private:
  size_t bytes_;
  char* memory_;
};

enum class Axis { kBatch, kHead, kRow };

int64_t& stride_of(StridedTensor& t, Axis axis) {
  return axis == Axis::kBatch ? t.batch_stride : axis == Axis::kHead ? t.head_stride : t.row_stride;
}

// One tensor of a problem: [batch, heads, rows, width], packed in the problem, spread here.
struct View {
  StridedTensor packed;
  StridedTensor* spread;
  int64_t heads, rows, width;
};

template <typename Copy>
void for_each_row(const View& view, int64_t batch_size, int64_t element_bytes, Copy copy) {
  for (int64_t b = 0; b < batch_size; ++b) {
    for (int64_t h = 0; h < view.heads; ++h) {
      for (int64_t s = 0; s < view.rows; ++s) {
        const auto row = [&](const StridedTensor& t) {
          return static_cast<char*>(t.data) +
                 (b * t.batch_stride + h * t.head_stride + s * t.row_stride) * element_bytes;
        };
        copy(row(*view.spread), row(view.packed), view.width * element_bytes);
      }
    }
  }
}

// Runs the problem on spread copies of its tensors and brings the output back.
Status run_spread(const qkexport::cpu::KernelTable& kernels, Problem& p, Axis axis) {
  const Sizes& s = p.sizes;
  AttentionParams params = p.params;
  std::vector<View> views = {
      {p.params.query, &params.query, s.num_heads, s.seqlen_q, s.head_dim},
      {p.params.key, &params.key, s.num_kv_heads, s.seqlen_kv, s.head_dim},
      {p.params.value, &params.value, s.num_kv_heads, s.seqlen_kv, s.head_dim_v},
      {p.params.past_key, &params.past_key, s.num_kv_heads, s.seqlen_past, s.head_dim},
      {p.params.past_value, &params.past_value, s.num_kv_heads, s.seqlen_past, s.head_dim_v},
      {p.params.output, &params.output, s.num_heads, s.seqlen_q, s.head_dim_v}};
  const int64_t bytes = p.params.dtype == DataType::kFloat32 ? 4 : 2;
  const int64_t far = axis == Axis::kRow ? kFarElements / (s.seqlen_q - 1) : kFarElements;
  const Region region(static_cast<size_t>((2 * kFarElements) * bytes));
  char* begin = region.memory();
  for (View& view : views) {
    view.spread->data = begin;
    stride_of(*view.spread, axis) = far;
    begin += s.batch_size * view.heads * view.rows * view.width * bytes;
    for_each_row(view, s.batch_size, bytes, [](char* spread, char* packed, int64_t row_bytes) {
      __builtin_memcpy(spread, packed, static_cast<size_t>(row_bytes));
    });
  }
  const Status status = run(kernels, params);
  for_each_row(views.back(), s.batch_size, bytes, [](char* spread, char* packed, int64_t n) {
    __builtin_memcpy(packed, spread, static_cast<size_t>(n));
  });
  return status;
}

TEST(rows_beyond_32_bits_of_elements_are_read_and_written) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const Axis axis : {Axis::kBatch, Axis::kHead, Axis::kRow}) {
      for (const int64_t seqlen : {3, 65}) {
        Sizes s;
        s.batch_size = s.num_heads = s.num_kv_heads = 2;
        s.seqlen_q = s.seqlen_kv = s.seqlen_past = seqlen;
        s.head_dim = s.head_dim_v = 40;
        Problem p(s, type);
        p.params.causal = qkexport::Causal::kLowerRight;
        const std::vector<double> exact = Exact(p).output();
        for (const auto* kernels : all_kernels()) {
          CHECK(run_spread(*kernels, p, axis) == Status::kSuccess);
          CHECK_TEXT(worst_error(p.output, exact) <= 1.0, kernels->name);
        }
      }
    }
  }
}

}  // namespace
