// Cuts a call into items.
#pragma once

#include <cstdint>

#include "qkexport/cpu/plan.h"
#include "qkexport/cpu/scratch.h"
#include "qkexport/cpu/tile_sizes.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// Packed keys and values that are alive at once: half of a desktop processor's last-level cache,
// or 2 MiB for each worker where there are many.
constexpr int64_t kWaveBytes = int64_t{16} << 20;
constexpr int64_t kWaveBytesPerWorker = int64_t{2} << 20;
// Items for each worker that make idle time at the end small.
constexpr int64_t kItemsPerWorker = 4;
// A shorter part of the key sequence is not worth a merge.
constexpr int64_t kMinSplitTiles = 4;
// About 8 us of arithmetic on one core: what waking a thread costs.
constexpr double kSerialFlops = 1e6;

inline Mode choose_mode(int64_t pair_rows) {
  if (pair_rows <= kRowBlock) return Mode::kStream;
  return pair_rows <= kLocalRows ? Mode::kLocal : Mode::kPacked;
}

inline void plan_rows(const AttentionParams& p, Plan& plan) {
  plan.group_size = p.num_heads / p.num_kv_heads;
  plan.pairs = p.batch_size * p.num_kv_heads;
  plan.pair_rows = plan.group_size * p.seqlen_q;
  plan.mode = choose_mode(plan.pair_rows);
  plan.stacked = p.seqlen_q < kTileRows;
  plan.row_tiles = plan.stacked ? ceil_div(plan.pair_rows, kTileRows)
                                : plan.group_size * ceil_div(p.seqlen_q, kTileRows);
}

inline void plan_splits(int64_t workers, Plan& plan) {
  plan.splits = 1;
  if (plan.mode != Mode::kPacked && plan.pairs > 0) {
    const int64_t wanted = ceil_div(kItemsPerWorker * workers, plan.pairs);
    const int64_t possible = ceil_div(plan.key_tiles, kMinSplitTiles);
    plan.splits = clamp(wanted, 1, possible > 0 ? possible : 1);
  }
  if (plan.key_tiles == 0) return;
  plan.split_tiles = ceil_div(plan.key_tiles, plan.splits);
  plan.splits = ceil_div(plan.key_tiles, plan.split_tiles);
}

inline void plan_append(const AttentionParams& p, Plan& plan) {
  if (p.present_key.data == nullptr && p.present_value.data == nullptr) return;
  plan.appends_in_place = p.kv_cache == KvCache::kStatic && p.present_key.data == p.past_key.data &&
                          p.present_value.data == p.past_value.data;
  plan.append_rows = plan.appends_in_place ? p.seqlen_kv : p.seqlen_total;
  plan.append_chunks = ceil_div(plan.append_rows, kAppendRows);
  plan.append_items = plan.pairs * plan.append_chunks;
}

inline void plan_waves(int64_t workers, Plan& plan) {
  const int64_t pair_bytes = plan.key_tiles * kTileKeys * (plan.head_dim + plan.head_dim_v) *
                             static_cast<int64_t>(sizeof(Packed));
  const int64_t budget =
      kWaveBytes > workers * kWaveBytesPerWorker ? kWaveBytes : workers * kWaveBytesPerWorker;
  const int64_t fitting = pair_bytes > 0 ? budget / pair_bytes : plan.pairs;
  const bool packed = plan.mode == Mode::kPacked;
  plan.wave_pairs = packed ? clamp(fitting, 1, plan.pairs > 0 ? plan.pairs : 1) : plan.pairs;
}

inline void plan_workspace(const AttentionParams& p, Plan& plan) {
  BlockCutter cutter(nullptr);
  WorkspaceLayout& layout = plan.layout;
  const auto reserve = [&](size_t& offset, int64_t bytes) {
    offset = cutter.used();
    cutter.take<char>(bytes);
  };
  const int64_t statistics = plan.statistics_items > 0 ? 2 * sizeof(float) : 0;
  const int64_t tiles = plan.mode == Mode::kPacked ? plan.wave_pairs * plan.key_tiles : 0;
  const int64_t tile_width = kTileKeys * static_cast<int64_t>(sizeof(Packed));
  reserve(layout.query_statistics, p.batch_size * p.seqlen_q * statistics);
  reserve(layout.key_statistics, p.batch_size * p.seqlen_kv * statistics);
  reserve(layout.keys, tiles * tile_width * plan.head_dim);
  reserve(layout.values, tiles * tile_width * plan.head_dim_v);
  reserve(layout.tiles, tiles * static_cast<int64_t>(sizeof(PackedTile)));
  const int64_t partial_rows = plan.splits > 1 ? plan.pairs * plan.splits * plan.pair_rows : 0;
  reserve(layout.partials,
          partial_rows * (plan.head_dim_v + kPartialState) * static_cast<int64_t>(sizeof(float)));
  layout.scratch = cutter.used();
  BlockCutter scratch(nullptr);
  cut_scratch(plan, scratch);
  layout.scratch_stride = scratch.used();
  if (fallback() != nullptr) {
    const size_t bytes = fallback()->attend_rows_scratch(plan);
    if (bytes > layout.scratch_stride) layout.scratch_stride = bytes;
  }
  // The base of the workspace need not be aligned.
  layout.total =
      layout.scratch + static_cast<size_t>(plan.workers) * layout.scratch_stride + kAlignment;
}

inline Plan make_plan(const AttentionParams& p, int64_t workers, int64_t longest) {
  Plan plan = {};
  plan.params = &p;
  plan.workers = workers;
  plan.head_dim = round_up(p.head_dim, kDepthStep);
  plan.head_dim_v = round_up(p.head_dim_v, kPanel);
  plan_rows(p, plan);
  plan.key_tiles = ceil_div(longest, kTileKeys);
  plan_splits(workers, plan);
  plan_append(p, plan);
  plan_waves(workers, plan);
  const int64_t tokens = p.seqlen_q > p.seqlen_kv ? p.seqlen_q : p.seqlen_kv;
  if (p.norm_axis == NormAxis::kHidden) plan.statistics_items = p.batch_size * tokens;
  const double flops = 2.0 * static_cast<double>(plan.pairs) * static_cast<double>(plan.pair_rows) *
                       static_cast<double>(longest) *
                       static_cast<double>(p.head_dim + p.head_dim_v);
  const double appended = static_cast<double>(plan.pairs * plan.append_rows) *
                          static_cast<double>(p.head_dim + p.head_dim_v);
  plan.serial = flops + appended < kSerialFlops;
  plan_workspace(p, plan);
  return plan;
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
