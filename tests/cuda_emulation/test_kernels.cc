// Properties of the kernels beyond their numbers on the covering cases.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "case_generator.h"
#include "check.h"
#include "cuda_emulation/control.h"
#include "device_run.h"
#include "expect.h"
#include "launch_plan.h"
#include "qkexport/cuda/attention_cuda.h"
#include "tile_config.cuh"
#include "workspace_layout.h"

namespace {

using namespace qkexport;
using cases::AttentionCase;
using cases::check_case;
using cuda_emulation::counters;

bool passes(const AttentionCase& c) {
  const cases::CheckResult result = check_case(c);
  if (!result.passed) std::printf("%s\n", result.message.c_str());
  return result.passed;
}

AttentionCase prefill(int64_t seqlen, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  AttentionCase c;
  c.dtype = DataType::kBFloat16;
  c.seqlen_q = c.seqlen_kv = seqlen;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.head_dim = c.head_dim_v = c.rotary_dim = head_dim;
  c.rotary = Rotary::kAfterNorm;
  return c;
}

AttentionCase decode(int64_t past) {
  AttentionCase c = prefill(1, 8, 2, 64);
  c.seqlen_past = past;
  c.causal = Causal::kLowerRight;
  return c;
}

void empty_sizes_launch_nothing_that_reads() {
  for (const auto& shrink : std::initializer_list<std::function<void(AttentionCase&)>>{
           [](AttentionCase& c) { c.batch_size = 0; }, [](AttentionCase& c) { c.seqlen_q = 0; },
           [](AttentionCase& c) { c.seqlen_kv = 0; },
           [](AttentionCase& c) { c.seqlen_kv = c.seqlen_q = 0; },
           [](AttentionCase& c) {
             c.seqlen_kv = 0;
             c.seqlen_past = 5;
             c.presents = cases::Presents::kCopied;
           }}) {
    for (const DataType dtype : {DataType::kFloat16, DataType::kFloat32}) {
      for (const NormAxis axis : {NormAxis::kHead, NormAxis::kHidden}) {
        AttentionCase c = prefill(7, 2, 1, 16);
        c.dtype = dtype;
        c.norm_axis = axis;
        c.position_ids = true;
        shrink(c);
        EXPECT(passes(c));
      }
    }
  }
}

void an_attention_is_two_launches() {
  const uint64_t before = counters().launches;
  EXPECT(passes(prefill(130, 4, 1, 64)));
  EXPECT(counters().launches == before + 2);
}

void queries_are_read_once_and_the_main_loop_has_no_bank_conflicts() {
  for (const int64_t head_dim : {64, 128, 256}) {
    const AttentionCase c = prefill(64, 2, 2, head_dim);
    counters() = {};
    EXPECT(passes(c));
    // One tile of keys and one of queries: every byte of q, k (twice) and v passes once.
    const uint64_t tensor_bytes = 64 * 2 * static_cast<uint64_t>(head_dim) * 2;
    EXPECT(counters().async_bytes == 4 * tensor_bytes);
    EXPECT(counters().ldmatrix > 0);
    EXPECT(counters().ldmatrix_conflicts == 0);
  }
}

void blocks_of_keys_outside_causal_and_window_limits_are_skipped() {
  AttentionCase c = prefill(1024, 1, 1, 64);
  counters() = {};
  EXPECT(passes(c));
  const uint64_t full = counters().mma;
  c.causal = Causal::kLowerRight;
  counters() = {};
  EXPECT(passes(c));
  EXPECT(counters().mma < full * 6 / 10);
  c.window_left = 64;
  counters() = {};
  EXPECT(passes(c));
  EXPECT(counters().mma < full * 3 / 10);
}

// Bytes of the output, so that NaN equals itself.
bool same_output(const cases::CaseTensors& a, const cases::CaseTensors& b) {
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    if (!a.buffers[i].is_output) continue;
    if (std::memcmp(a.buffers[i].data.get(), b.buffers[i].data.get(), a.buffers[i].bytes) != 0) {
      return false;
    }
  }
  return true;
}

void results_do_not_depend_on_the_order_of_execution() {
  for (const AttentionCase& c : {prefill(257, 4, 2, 64), decode(2048)}) {
    cases::CaseTensors first = cases::make_tensors(c);
    cuda_emulation::set_options({1, 80});
    EXPECT(cases::run_on_device(first).empty());
    for (uint64_t seed = 2; seed < 6; ++seed) {
      cases::CaseTensors again = cases::make_tensors(c);
      cuda_emulation::set_options({seed, 80});
      EXPECT(cases::run_on_device(again).empty());
      EXPECT(same_output(first, again));
    }
  }
}

void decoding_splits_the_keys_and_packs_grouped_heads() {
  counters() = {};
  EXPECT(passes(decode(4095)));
  EXPECT(counters().launches == 3);
  // 2 kv heads x 16 splits of 256 keys, one key prologue block each, and 8 rows to combine.
  EXPECT(counters().blocks == 2 + 2 * 16 + 8);
  AttentionCase c = decode(600);
  c.head_scale = cases::ScaleShape::kPerHead;
  EXPECT(passes(c));
}

// The first query sees one key alone, whose score is -infinity for some heads and whose value is
// infinite: 0 * infinity.
void splits_pass_on_what_is_not_a_number() {
  for (const DataType dtype : {DataType::kFloat16, DataType::kFloat32}) {
    AttentionCase c = decode(600);
    c.dtype = dtype;
    c.seqlen_q = 20;
    c.seqlen_kv = 31;
    c.rotary = Rotary::kNone;
    c.normalize_key = false;
    c.window_left = 0;
    c.fill = cases::Fill::kNonfiniteRows;
    EXPECT(passes(c));
  }
}

void sixty_four_thousand_keys_stay_within_tolerance() {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32}) {
    AttentionCase c = decode(65536 - 2);
    c.seqlen_q = c.seqlen_kv = 2;
    c.num_heads = 2;
    c.num_kv_heads = 1;
    c.dtype = dtype;
    EXPECT(passes(c));
  }
}

// One block that visits all keys, with and without the running maximum, and split keys of wide
// heads.
void sixty_four_thousand_keys_pass_through_every_path() {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const float scale : {0.01f, 1.0f}) {
        AttentionCase c = prefill(65536, 1, 1, head_dim);
        c.seqlen_q = 64;
        c.separate_key_rotary = true;
        c.dtype = dtype;
        c.scale = scale;
        EXPECT(passes(c));
      }
    }
  }
  for (const int64_t head_dim : {256, 512}) {
    for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat32}) {
      AttentionCase c = decode(65535);
      c.num_heads = c.num_kv_heads = 1;
      c.head_dim = c.head_dim_v = c.rotary_dim = head_dim;
      c.dtype = dtype;
      EXPECT(passes(c));
    }
  }
}

// q and k are normalized, so |score| <= head_dim * scale: the scale decides whether the running
// maximum is needed. Both sides of the boundary must be right, also where the largest scores come
// close to the bound: were it too small, fp16 weights would overflow.
void results_agree_on_both_sides_of_the_score_bound() {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    const float limit = dtype == DataType::kFloat16 ? 7.5f : 32.0f;
    for (const float relative : {0.5f, 0.98f, 1.02f, 4.0f}) {
      AttentionCase c = prefill(65, 2, 1, 64);
      c.dtype = dtype;
      c.gain = cases::GainShape::kNone;
      c.scale = relative * limit / (64.0f * 1.4426950f);
      EXPECT(passes(c));
      c.fill = cases::Fill::kParallel;
      c.rotary = Rotary::kNone;
      EXPECT(passes(c));
      c.misalignment = 1;  // channel by channel
      EXPECT(passes(c));
      c.num_heads = 8;
      c.head_scale = cases::ScaleShape::kPerHead;  // some of them beyond the limit
      EXPECT(passes(c));
    }
  }
}

// New keys have length 1, old ones are eight times as long: weights beyond what fp16 holds, were
// the bound that of the new ones.
void old_keys_count_for_the_score_bound() {
  AttentionCase c = prefill(65, 2, 1, 64);
  c.dtype = DataType::kFloat16;
  c.qk_norm = QkNorm::kL2;
  c.gain = cases::GainShape::kNone;
  c.seqlen_past = 65;
  c.presents = cases::Presents::kCopied;
  c.scale = 1.0f;
  EXPECT(passes(c));
}

void devices_before_sm_80_get_kernels_they_have() {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32}) {
    for (const int64_t head_dim : {64, 128, 192}) {
      AttentionCase c = prefill(65, 2, 1, head_dim);
      c.dtype = dtype;
      cases::CaseTensors old_device = cases::make_tensors(c);
      cuda_emulation::set_options({1, 75});
      EXPECT(cases::run_on_device(old_device).empty());
      const bool tensor_core = dtype == DataType::kFloat16 && head_dim <= 128;
      EXPECT((cuda::make_plan(old_device.params, {75}).path == cuda::AttentionPath::kTensorCore) ==
             tensor_core);
      EXPECT(cases::compare_with_oracle(c, old_device).passed);
    }
  }
  cuda_emulation::set_options({});
}

// Without asynchronous copies the fp16 kernel of head_dim up to 64 takes smaller steps of keys.
bool has_smaller_steps(const AttentionCase& c) {
  return c.dtype == DataType::kFloat16 && std::max(c.head_dim, c.head_dim_v) <= 64;
}

void steps_of_devices_before_sm_80_serve_every_choice() {
  cuda_emulation::set_options({1, 75});
  int ran = 0;
  for (const AttentionCase& c : cases::covering_cases(75, 120, 129)) {
    if (!has_smaller_steps(c)) continue;
    ++ran;
    EXPECT(passes(c));
  }
  EXPECT(ran >= 12);
  for (AttentionCase c : {prefill(257, 4, 2, 64), decode(2048)}) {
    c.dtype = DataType::kFloat16;
    EXPECT(has_smaller_steps(c));
    counters() = {};
    EXPECT(passes(c));
    EXPECT(counters().ldmatrix_conflicts == 0);
    c.fill = cases::Fill::kNonfiniteRows;
    c.causal = Causal::kLowerRight;
    EXPECT(passes(c));
  }
  cuda_emulation::set_options({});
}

// Bytes of shared memory: two blocks a multiprocessor, and what one block may have at all.
void shared_memory_leaves_room_for_two_blocks() {
  const auto bytes = [](int head_dim, bool asynchronous) {
    return cuda::attention_shared_bytes(head_dim, cuda::key_block(head_dim, asynchronous), 2);
  };
  EXPECT(bytes(64, false) == 32 << 10);
  EXPECT(bytes(128, false) == 64 << 10);  // all that sm_75 has: one block
  EXPECT(bytes(64, true) == 48 << 10);
  EXPECT(bytes(128, true) == 64 << 10);
  EXPECT(bytes(256, true) == 96 << 10);  // of 99 KiB on sm_86, sm_89 and sm_120
  const AttentionParams p = cases::make_tensors(prefill(65, 2, 1, 64)).params;
  EXPECT(cuda::make_plan(p, {75}).key_block == 32);
  EXPECT(cuda::make_plan(p, {80}).key_block == 64);
}

void sizes_without_a_kernel_are_refused() {
  const cases::CaseTensors tensors = cases::make_tensors(prefill(4, 2, 1, 16));
  const auto refusal = [&](const std::function<void(AttentionParams&)>& change) {
    AttentionParams params = tensors.params;
    change(params);
    return cuda::can_implement(params);
  };
  EXPECT(refusal([](AttentionParams&) {}) == Status::kSuccess);
  EXPECT(refusal([](AttentionParams& p) { p.dtype = DataType::kBool; }) ==
         Status::kUnsupportedType);
  EXPECT(refusal([](AttentionParams& p) {
           p.num_heads = 3;
           p.num_kv_heads = 2;
         }) == Status::kInvalidShape);
  EXPECT(refusal([](AttentionParams& p) { p.head_dim = 513; }) == Status::kUnsupportedSize);
  EXPECT(refusal([](AttentionParams& p) { p.head_dim_v = 513; }) == Status::kUnsupportedSize);
  EXPECT(refusal([](AttentionParams& p) { p.seqlen_q = -1; }) == Status::kInvalidShape);
  EXPECT(refusal([](AttentionParams& p) { p.rotary_dim = 3; }) == Status::kInvalidShape);
  EXPECT(refusal([](AttentionParams& p) { p.query_rotary.width = 5; }) == Status::kInvalidShape);
  for (int64_t AttentionParams::* size :
       {&AttentionParams::seqlen_q, &AttentionParams::seqlen_kv, &AttentionParams::seqlen_total,
        &AttentionParams::batch_size}) {
    EXPECT(refusal([&](AttentionParams& p) { p.*size = int64_t{1} << 62; }) ==
           Status::kUnsupportedSize);
  }
  EXPECT(refusal([](AttentionParams& p) { p.num_heads = int64_t{1} << 26; }) ==
         Status::kUnsupportedSize);
  EXPECT(refusal([](AttentionParams& p) {
           p.batch_size = int64_t{1} << 30;
           p.num_heads = p.num_kv_heads = int64_t{1} << 30;
         }) == Status::kUnsupportedSize);
}

void a_workspace_that_is_too_small_is_refused_before_any_launch() {
  const cases::CaseTensors tensors = cases::make_tensors(prefill(65, 2, 1, 64));
  const uint64_t before = counters().launches;
  const std::size_t needed = cuda::workspace_size(tensors.params);
  EXPECT(needed > 0);
  EXPECT(cuda::run(tensors.params, nullptr, needed - 1, nullptr) == Status::kWorkspaceTooSmall);
  EXPECT(counters().launches == before);
}

// Keys [B, Hkv, Skv, D] in the workspace, and statistics of the norms over all heads.
void workspaces_beyond_32_bits_are_counted_in_full() {
  AttentionParams p = cases::make_tensors(prefill(64, 8, 8, 128)).params;
  p.batch_size = 4;
  p.seqlen_q = p.seqlen_kv = p.seqlen_total = int64_t{1} << 24;
  const std::size_t keys = (std::size_t{1} << 24) * 4 * 8 * 128 * 2;
  const std::size_t tiles = (std::size_t{1} << 24) / 64 * 4 * 8;
  EXPECT(cuda::can_implement(p) == Status::kSuccess);
  EXPECT(cuda::workspace_size(p) == keys + tiles * 4 * sizeof(float));
  p.norm_axis = NormAxis::kHidden;
  EXPECT(cuda::workspace_size(p) ==
         keys + tiles * 4 * sizeof(float) + 2 * 4 * (std::size_t{1} << 24) * 8);
  const cuda::KernelArguments a = cuda::resolve_arguments(cuda::make_plan(p, {80}), nullptr);
  EXPECT(reinterpret_cast<std::uintptr_t>(a.query_statistics) == keys);
  p.seqlen_q = p.seqlen_kv = p.seqlen_total = int64_t{1} << 28;
  EXPECT(cuda::can_implement(p) == Status::kSuccess);
  p.seqlen_total += 1;
  EXPECT(cuda::can_implement(p) == Status::kUnsupportedSize);
}

AttentionParams with_sizes(AttentionParams p, int64_t batch, int64_t seqlen_q, int64_t total) {
  p.batch_size = batch;
  p.seqlen_q = seqlen_q;
  p.seqlen_kv = std::min<int64_t>(total, 96);
  p.seqlen_past = total - p.seqlen_kv;
  p.seqlen_total = total;
  return p;
}

void the_workspace_bound_is_the_largest_of_all_sizes() {
  const AttentionParams plain = cases::make_tensors(prefill(2, 32, 8, 128)).params;
  for (const int64_t lowest : {1, 40, 64}) {
    const AttentionParams smallest = with_sizes(plain, 1, lowest, 1);
    const AttentionParams largest = with_sizes(plain, 3, 96, 4096);
    std::size_t needed = 0;
    for (int64_t batch = 1; batch <= 3; ++batch) {
      for (int64_t seqlen_q = lowest; seqlen_q <= 96; ++seqlen_q) {
        for (const int64_t total : {1, 255, 512, 1000, 4095, 4096}) {
          needed =
              std::max(needed, cuda::workspace_size(with_sizes(plain, batch, seqlen_q, total)));
        }
      }
    }
    EXPECT(cuda::workspace_bound(smallest, largest) == needed);
    EXPECT((lowest < 64) == (needed > cuda::workspace_size(largest)));
  }
}

}  // namespace

// With an argument: only what takes minutes.
int main(int argc, char** /*argv*/) {
  if (argc > 1) {
    RUN(sixty_four_thousand_keys_pass_through_every_path);
    return failed_expectations() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  RUN(empty_sizes_launch_nothing_that_reads);
  RUN(an_attention_is_two_launches);
  RUN(queries_are_read_once_and_the_main_loop_has_no_bank_conflicts);
  RUN(blocks_of_keys_outside_causal_and_window_limits_are_skipped);
  RUN(results_do_not_depend_on_the_order_of_execution);
  RUN(decoding_splits_the_keys_and_packs_grouped_heads);
  RUN(splits_pass_on_what_is_not_a_number);
  RUN(sixty_four_thousand_keys_stay_within_tolerance);
  RUN(results_agree_on_both_sides_of_the_score_bound);
  RUN(old_keys_count_for_the_score_bound);
  RUN(devices_before_sm_80_get_kernels_they_have);
  RUN(steps_of_devices_before_sm_80_serve_every_choice);
  RUN(shared_memory_leaves_room_for_two_blocks);
  RUN(sizes_without_a_kernel_are_refused);
  RUN(a_workspace_that_is_too_small_is_refused_before_any_launch);
  RUN(workspaces_beyond_32_bits_are_counted_in_full);
  RUN(the_workspace_bound_is_the_largest_of_all_sizes);
  return failed_expectations() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
