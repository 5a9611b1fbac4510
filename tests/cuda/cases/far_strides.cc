#include "far_strides.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "device_memory.h"
#include "device_run.h"
#include "device_tensors.h"

namespace qkexport::cases {
namespace {

constexpr int64_t kFarElements = (int64_t{1} << 31) + 64;
constexpr int64_t kAlignment = 256;  // bytes; every row can be read in 16-byte pieces

using Triple = std::array<int64_t, 3>;  // of batch, head and row

int64_t align(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// An array of rows in host memory, and the pointer and strides of the parameters that follow when
// it is spread over the region. A dimension of stride 0 is shared and stays so.
struct View {
  unsigned char* host;
  Triple sizes;
  Triple host_strides;  // elements
  Triple strides;       // bytes, in the region
  int64_t row_elements;
  int64_t element_bytes;
  bool is_output;
  void** pointer;
  std::array<int64_t*, 3> targets;

  int64_t row_bytes() const { return row_elements * element_bytes; }
};

View view_of(StridedTensor& t, const void* host, const AttentionParams& p, int64_t heads,
             int64_t rows, int64_t channels, bool is_output) {
  return {static_cast<unsigned char*>(const_cast<void*>(host)),
          {p.batch_size, heads, rows},
          {t.batch_stride, t.head_stride, t.row_stride},
          {},
          channels,
          size_of(p.dtype),
          is_output,
          &t.data,
          {&t.batch_stride, &t.head_stride, &t.row_stride}};
}

View view_of(AttentionMask& m, const void* host, const AttentionParams& p) {
  return {static_cast<unsigned char*>(const_cast<void*>(host)),
          {m.batch_size, p.num_heads, p.seqlen_q},
          {m.batch_stride, m.head_stride, m.row_stride},
          {},
          m.column_stride == 0 ? 1 : p.seqlen_total,
          size_of(m.dtype),
          false,
          const_cast<void**>(&m.data),
          {&m.batch_stride, &m.head_stride, &m.row_stride}};
}

// The tensors of `device` that exist; their contents stand in `host`.
std::vector<View> views_of(AttentionParams& device, const AttentionParams& host) {
  AttentionParams& d = device;
  const AttentionParams& p = host;
  const int64_t past = p.kv_cache == KvCache::kStatic ? p.seqlen_total : p.seqlen_past;
  const auto keys = [&](StridedTensor& t, const StridedTensor& from, int64_t rows, bool output) {
    return view_of(t, from.data, p, p.num_kv_heads, rows, p.head_dim, output);
  };
  const auto values = [&](StridedTensor& t, const StridedTensor& from, int64_t rows, bool output) {
    return view_of(t, from.data, p, p.num_kv_heads, rows, p.head_dim_v, output);
  };
  const std::vector<View> all = {
      view_of(d.query, p.query.data, p, p.num_heads, p.seqlen_q, p.head_dim, false),
      keys(d.key, p.key, p.seqlen_kv, false),
      values(d.value, p.value, p.seqlen_kv, false),
      keys(d.past_key, p.past_key, past, false),
      values(d.past_value, p.past_value, past, false),
      view_of(d.output, p.output.data, p, p.num_heads, p.seqlen_q, p.head_dim_v, true),
      keys(d.present_key, p.present_key, p.seqlen_total, true),
      values(d.present_value, p.present_value, p.seqlen_total, true),
      view_of(d.mask, p.mask.data, p)};
  std::vector<View> present;
  std::copy_if(all.begin(), all.end(), std::back_inserter(present),
               [](const View& view) { return view.host != nullptr; });
  for (View& view : present) {
    for (int i = 0; i < 3; ++i) {
      if (view.host_strides[i] == 0) view.sizes[i] = 1;
    }
  }
  return present;
}

// Packs a view but for the neighbours along `far`. Returns the bytes of one neighbour.
int64_t spread(View& view, int far, int64_t far_bytes) {
  int64_t packed = align(view.row_bytes());
  for (int i = 2; i >= 0; --i) {
    const bool shared = view.host_strides[i] == 0;
    view.strides[i] = shared ? 0 : i == far ? far_bytes : packed;
    if (i != far) packed *= view.sizes[i];
  }
  return packed;
}

// Calls visit(host row, device row) until it answers false.
template <class Visit>
bool for_each_row(const View& view, Visit visit) {
  for (int64_t b = 0; b < view.sizes[0]; ++b) {
    for (int64_t h = 0; h < view.sizes[1]; ++h) {
      for (int64_t s = 0; s < view.sizes[2]; ++s) {
        const auto offset = [&](const Triple& strides) {
          return b * strides[0] + h * strides[1] + s * strides[2];
        };
        if (!visit(view.host + offset(view.host_strides) * view.element_bytes,
                   static_cast<unsigned char*>(*view.pointer) + offset(view.strides))) {
          return false;
        }
      }
    }
  }
  return true;
}

bool send(const View& view) {
  return for_each_row(view, [&](unsigned char* host, unsigned char* device) {
    return copy_to_device(device, host, static_cast<std::size_t>(view.row_bytes()));
  });
}

bool fetch(const View& view) {
  return !view.is_output || for_each_row(view, [&](unsigned char* host, unsigned char* device) {
    return copy_to_host(host, device, static_cast<std::size_t>(view.row_bytes()));
  });
}

class Region {
 public:
  explicit Region(int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), memory_(device_reserve(bytes_)) {}
  ~Region() {
    if (memory_ != nullptr) device_release(memory_, bytes_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  unsigned char* memory() const { return static_cast<unsigned char*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

// Bytes between neighbours, such that the last one lies beyond kFarElements: of every view, or, as
// their numbers of rows may differ by hundreds, of the longest.
int64_t far_stride(const std::vector<View>& views, FarAxis axis) {
  const int far = static_cast<int>(axis);
  int64_t longest = 0;
  for (const View& view : views) longest = std::max(longest, view.sizes[far] - 1);
  int64_t stride = kAlignment;
  for (const View& view : views) {
    const int64_t steps = axis == FarAxis::kRow ? longest : view.sizes[far] - 1;
    if (steps > 0) stride = std::max(stride, kFarElements * view.element_bytes / steps);
  }
  return align(stride);
}

// Where each view begins in the region, and the bytes of the region.
struct Layout {
  std::vector<int64_t> begins;
  int64_t bytes;
};

Layout spread_all(std::vector<View>& views, FarAxis axis) {
  const int far = static_cast<int>(axis);
  const int64_t stride = far_stride(views, axis);
  Layout layout{{}, 0};
  int64_t last = 0;
  for (View& view : views) {
    layout.begins.push_back(layout.bytes);
    layout.bytes += spread(view, far, stride);
    last = std::max(last, (view.sizes[far] - 1) * stride);
  }
  layout.bytes += last;
  return layout;
}

void move_to(unsigned char* begin, const View& view) {
  *view.pointer = begin;
  for (int i = 0; i < 3; ++i) *view.targets[i] = view.strides[i] / view.element_bytes;
}

std::string run_far(CaseTensors& tensors, FarAxis axis) {
  const DeviceTensors near(tensors);  // of what is not spread: gains, angles, lengths
  if (!near.good()) return "the device has no memory left";
  AttentionParams params = near.params();
  std::vector<View> views = views_of(params, tensors.params);
  const Layout layout = spread_all(views, axis);
  const Region region(layout.bytes);
  if (region.memory() == nullptr) return "the device cannot reserve some gigabytes";
  for (std::size_t i = 0; i < views.size(); ++i) {
    move_to(region.memory() + layout.begins[i], views[i]);
    if (!send(views[i])) return "inputs cannot be sent";
  }
  if (tensors.params.present_key.data == tensors.params.past_key.data) {
    params.past_key = params.present_key;
    params.past_value = params.present_value;
  }
  const std::string fault = run_parameters(params);
  if (!fault.empty()) return fault;
  return std::all_of(views.begin(), views.end(), fetch) ? "" : "results cannot be read back";
}

}  // namespace

CheckResult check_far_case(const AttentionCase& c, FarAxis axis) {
  CaseTensors tensors = make_tensors(c);
  device_shuffle(c.seed);
  const std::string fault = run_far(tensors, axis);
  if (!fault.empty()) return {false, 0.0, 0.0, describe(c) + ": " + fault};
  return compare_with_oracle(c, tensors);
}

}  // namespace qkexport::cases
