// The attention kernel: query norm and RoPE, then flash attention on the tensor cores.
//
// A block owns kBlockM query rows of one kv head; a warp owns 16 * kRowFragments of them from the
// norm to the store, so only the tiles of keys and values need barriers. While the first keys are
// on their way the queries are normalized and rotated in shared memory; then each step multiplies
// one block of keys, with the next one's copies in flight.
#pragma once

#include "device/epilogue.cuh"
#include "device/key_blocks.cuh"
#include "device/quad_transform.cuh"
#include "device/score_bound.cuh"
#include "device/score_transform.cuh"
#include "device/softmax_state.cuh"
#include "device/tile_loader.cuh"
#include "device/value_guard.cuh"
#include "tile_config.cuh"

namespace qkexport::cuda {

template <class Traits>
struct AttentionTiles {
  using T = typename Traits::Element;
  using Tile = SharedTile<T, Traits::kPitch>;
  static constexpr int kTileElements = Traits::kBlockN * Traits::kPitch;

  T* base;

  QKEXPORT_DEVICE Tile query() const { return {base}; }
  QKEXPORT_DEVICE Tile key(int stage) const {
    return {base + Traits::kBlockM * Traits::kPitch + 2 * stage * kTileElements};
  }
  QKEXPORT_DEVICE Tile value(int stage) const { return {key(stage).data + kTileElements}; }
};

// Norm and RoPE of the warp's rows; returns the largest bound of their scores, in exponents of two
// (infinite where bounds are not in use).
template <class Traits, class Tile>
QKEXPORT_DEVICE float transform_queries(Tile tile, const KernelArguments& arguments,
                                        const RowMap& map, const BlockCoordinates& block,
                                        int first_row) {
  const AttentionParams& p = arguments.params;
  const bool bounded = arguments.key_norms != nullptr;
  const float key_norm =
      bounded ? largest_key_norm(arguments, block.batch, block.kv_head) : INFINITY;
  float bound = 0.0f;
#pragma unroll 1
  for (int step = 0; step < Traits::kRowFragments * 16; step += kRowsPerStep) {
    const int row = first_row + step_row(step);
    const QueryRow query = map(row);
    const TransformRow transform =
        query_transform(arguments, block.batch, query.head, query.position, query.valid);
    const float squares = transform_row(tile, row, transform, arguments.query_in_quads, bounded);
    if (!bounded) continue;
    const float norm = sqrtf(squares);
    const float scale = row_scale(p, block.batch, query.head, query.position);
    bound = fmaxf(bound, row_bound(p, scale, norm, key_norm));
  }
  return bounded ? group_max<kWarpSize>(bound) : INFINITY;
}

// Starts the copies of one block of keys and values.
template <class Traits>
QKEXPORT_DEVICE void load_key_block(const AttentionTiles<Traits>& tiles, int stage,
                                    const KernelArguments& arguments,
                                    const KvRows<typename Traits::Element>& keys,
                                    const KvRows<typename Traits::Element>& values, int first_key) {
  using Rows = KvTileRows<typename Traits::Element>;
  const AttentionParams& p = arguments.params;
  load_tile<Traits::kBlockN, Traits::kHeadDim, Traits::kThreads>(
      tiles.key(stage), Rows{keys, first_key}, static_cast<int>(p.head_dim),
      arguments.key.vectorized);
  load_tile<Traits::kBlockN, Traits::kHeadDim, Traits::kThreads>(
      tiles.value(stage), Rows{values, first_key}, static_cast<int>(p.head_dim_v),
      arguments.value.vectorized);
}

template <class Traits>
QKEXPORT_DEVICE void attend(const KernelArguments& arguments) {
  using T = typename Traits::Element;
  constexpr int kBlockN = Traits::kBlockN;
  constexpr int kRowFragments = Traits::kRowFragments;
  const AttentionParams& p = arguments.params;
  const BlockCoordinates block = block_coordinates<Traits::kBlockM>(arguments);
  const RowMap map(arguments, block);
  const Visibility visibility(p, block.batch);
  const KeyBlocks blocks =
      key_blocks<Traits::kBlockM, kBlockN>(arguments, map, visibility, block.split);
  const KvRows<T> keys(p, arguments.key, block.batch, block.kv_head, visibility.length);
  const KvRows<T> values(p, arguments.value, block.batch, block.kv_head, visibility.length);
  const AttentionTiles<Traits> tiles{reinterpret_cast<T*>(shared_memory())};
  const int first_row = warp_index() * kRowFragments * 16;

  load_tile<Traits::kBlockM, Traits::kHeadDim, Traits::kThreads>(
      tiles.query(), QueryTileRows<T>{p, map, block.batch}, static_cast<int>(p.head_dim),
      arguments.query_vectorized);
  cp_async_commit();
  if (blocks.first < blocks.last) {
    load_key_block<Traits>(tiles, 0, arguments, keys, values, blocks.first * kBlockN);
  }
  cp_async_commit();
  cp_async_wait<1>();
  sync_threads();
  const float bound_value =
      transform_queries<Traits>(tiles.query(), arguments, map, block, first_row);
  sync_warp();

  const float factor = arguments.plain_scores ? p.scale * kLog2E : 1.0f;
  const ScoreBound bound = ScoreBound::of<T>(bound_value);
  SoftmaxState<kRowFragments> state;
  state.clear();
  if (bound.usable) state.fix_maximum(bound.shift / factor);
  Accumulator<kRowFragments, Traits::kHeadDim> o;
  o.clear();
  const bool has_mask = p.mask.data != nullptr;

#pragma unroll 1
  for (int index = blocks.first; index < blocks.last; ++index) {
    const int stage = (index - blocks.first) % kStages;
    const int first_key = index * kBlockN;
    const int rare_row = opaque(first_row);  // for branches that few steps take
    cp_async_wait<0>();
    sync_threads();
    if (index + 1 < blocks.last) {
      load_key_block<Traits>(tiles, (stage + 1) % kStages, arguments, keys, values,
                             first_key + kBlockN);
    }
    cp_async_commit();

    Accumulator<kRowFragments, kBlockN> s;
    multiply_query_key<Traits::kHeadDim>(s, tiles.query().from_row(first_row), tiles.key(stage));
    if (!arguments.plain_scores) transform_scores(s, arguments, map, block.batch, rare_row);
    bool repairs_values = false;
    if (has_mask || blocks.needs_mask<kBlockN>(first_key)) {
      mask_scores(s, p, map, visibility, block.batch, rare_row, first_key);
      if (has_mask || blocks.needs_guard<kBlockN>(first_key, visibility.length)) {
        repairs_values = tile_has_nonfinite<kBlockN, Traits::kThreads>(tiles.value(stage));
        if (repairs_values) clear_nonfinite<kBlockN, Traits::kThreads>(tiles.value(stage));
      }
    }
    if (!bound.usable) state.raise_maximum(s, o, factor);
    state.weigh(s, factor);
    multiply_weight_value(o, s, tiles.value(stage));
    if (repairs_values) {
      add_nonfinite<kBlockN>(o, p, values, map, visibility, block.batch, rare_row, first_key);
    }
  }
  cp_async_wait<0>();

  state.finish();
  if (arguments.partial_output != nullptr) {
    store_partial(o, state, factor, arguments, map, block, first_row);
  } else {
    store_output(o, state, tiles.query(), arguments, map, block.batch, first_row);
  }
}

// One of the two is all that an architecture's code holds.
template <class T, int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_kernel(const __grid_constant__ KernelArguments arguments) {
  if (!has_mma<T>()) return;  // launch_plan.cc chooses another kernel there
  if (copies_asynchronously()) {
    attend<AttentionTraits<T, kHeadDim, kKeyBlock<kHeadDim, true>>>(arguments);
  } else {
    attend<AttentionTraits<T, kHeadDim, kKeyBlock<kHeadDim, false>>>(arguments);
  }
}

}  // namespace qkexport::cuda
