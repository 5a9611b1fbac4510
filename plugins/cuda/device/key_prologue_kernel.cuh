// The key prologue: norm and RoPE of the new keys, once, into the workspace or present_key, with
// values copied beside them where presents are wanted.
//
// A key row is read by every block of queries, so it is transformed here rather than there. With
// grouped heads there are H / Hkv times fewer keys than queries.
#pragma once

#include "device/kv_rows.cuh"
#include "device/quad_transform.cuh"
#include "device/tile_loader.cuh"
#include "tile_config.cuh"

namespace qkexport::cuda {

// Rows of the sequence that a block of the key prologue works on. Where old rows are copied the
// tiles cover the whole sequence, else only the new tokens.
struct PrologueRows {
  const KernelArguments& arguments;
  int64_t batch;
  int head;
  int first;
  int begin;  // row of the sequence where the new tokens begin
  int count;

  QKEXPORT_DEVICE PrologueRows(const KernelArguments& arguments, int rows_per_tile)
      : arguments(arguments) {
    const AttentionParams& p = arguments.params;
    const auto index = static_cast<uint32_t>(block_index());
    const auto tiles = static_cast<uint32_t>(arguments.num_key_tiles);
    const auto heads = static_cast<uint32_t>(p.num_kv_heads);
    first = static_cast<int>(index % tiles) * rows_per_tile;
    head = static_cast<int>(index / tiles % heads);
    batch = index / tiles / heads;
    begin = fresh_begin(p, batch);
    count = static_cast<int>(arguments.copies_past ? p.seqlen_total : p.seqlen_kv);
  }

  // The new token of a row of the tile, -1 where it is an old row or none.
  QKEXPORT_DEVICE int token(int row) const {
    if (first + row >= count) return -1;
    const int token = arguments.copies_past ? first + row - begin : first + row;
    return token >= 0 && token < arguments.params.seqlen_kv ? token : -1;
  }
  // Its row of the sequence, -1 for none.
  QKEXPORT_DEVICE int sequence_row(int row) const {
    if (first + row >= count) return -1;
    const int position = arguments.copies_past ? first + row : first + row + begin;
    return position < arguments.params.seqlen_total ? position : -1;
  }
};

template <class T>
QKEXPORT_DEVICE T* tensor_row(const StridedTensor& tensor, int64_t batch, int head, int64_t row) {
  return static_cast<T*>(tensor.data) + batch * tensor.batch_stride + head * tensor.head_stride +
         row * tensor.row_stride;
}

// Where a row comes from: the new token, or the past of a row that is copied. Else it is invalid.
template <class T>
struct PrologueSource {
  const PrologueRows& rows;
  const StridedTensor& fresh;
  const StridedTensor& past;
  bool copies_past;

  QKEXPORT_DEVICE RowPointer<T> operator()(int row) const {
    const int token = rows.token(row);
    if (token >= 0) return {tensor_row<T>(fresh, rows.batch, rows.head, token), true};
    const int position = rows.sequence_row(row);
    if (!copies_past || position < 0) return {static_cast<const T*>(fresh.data), false};
    return {tensor_row<T>(past, rows.batch, rows.head, position), true};
  }
};

// Where it goes. Null: nowhere.
template <class T>
QKEXPORT_DEVICE T* key_target_row(const PrologueRows& rows, int row) {
  const KernelArguments& arguments = rows.arguments;
  const int token = rows.token(row);
  if (!arguments.key_target_is_present) {
    return token < 0 ? nullptr : tensor_row<T>(arguments.key_target, rows.batch, rows.head, token);
  }
  const int position = rows.sequence_row(row);
  if (position < 0 || (token < 0 && !arguments.copies_past_key)) return nullptr;
  return tensor_row<T>(arguments.key_target, rows.batch, rows.head, position);
}

template <class T>
QKEXPORT_DEVICE T* value_target_row(const PrologueRows& rows, int row) {
  const KernelArguments& arguments = rows.arguments;
  const int position = rows.sequence_row(row);
  if (position < 0 || (rows.token(row) < 0 && !arguments.copies_past_value)) return nullptr;
  return tensor_row<T>(arguments.params.present_value, rows.batch, rows.head, position);
}

// Norm and RoPE of the new rows of the tile, and the largest norm of the warp's rows. Each warp
// works on its own quarter of the rows.
template <int kRows, class Tile>
QKEXPORT_DEVICE float transform_keys(Tile tile, const PrologueRows& rows) {
  const KernelArguments& arguments = rows.arguments;
  const AttentionParams& p = arguments.params;
  constexpr int kRowsPerWarp = kRows / kAttentionWarps;
  float largest = 0.0f;
#pragma unroll 1
  for (int step = 0; step < kRowsPerWarp; step += kRowsPerStep) {
    const int row = warp_index() * kRowsPerWarp + step_row(step);
    const int token = rows.token(row);
    const bool active = token >= 0 && p.normalize_key;
    const float squares = transform_row(
        tile, row, key_transform(arguments, rows.batch, rows.head, active ? token : 0, active),
        arguments.key_in_quads, arguments.key_norms != nullptr);
    largest = fmaxf(largest, squares);
  }
  return sqrtf(group_max<kWarpSize>(largest));
}

template <int kRows, class T, class Tile>
QKEXPORT_DEVICE void store_keys(Tile tile, const PrologueRows& rows) {
  const int channels = static_cast<int>(rows.arguments.params.head_dim);
#pragma unroll 1
  for (int i = thread_index(); i < kRows * Tile::kChunksPerRow; i += kAttentionWarps * kWarpSize) {
    const int row = i / Tile::kChunksPerRow;
    const int chunk = i % Tile::kChunksPerRow;
    if (chunk * Tile::kChunk >= channels) continue;
    T* target = key_target_row<T>(rows, row);
    if (target == nullptr) continue;
    const T* source = tile.chunk(row, chunk);
    target += chunk * Tile::kChunk;
    if (rows.arguments.key_target_vectorized) {
      *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
      continue;
    }
    for (int e = 0; e < Tile::kChunk && chunk * Tile::kChunk + e < channels; ++e) {
      target[e] = source[e];
    }
  }
}

template <int kRows, class T>
QKEXPORT_DEVICE void copy_values(const PrologueRows& rows) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  const KernelArguments& arguments = rows.arguments;
  const AttentionParams& p = arguments.params;
  const PrologueSource<T> sources{rows, p.value, p.past_value, arguments.copies_past_value};
  const int width = arguments.value_copy_vectorized ? kChunk : 1;
  const int steps = static_cast<int>(p.head_dim_v) / width;
#pragma unroll 1
  for (int i = thread_index(); i < kRows * steps; i += kAttentionWarps * kWarpSize) {
    const int row = i / steps;
    T* target = value_target_row<T>(rows, row);
    const RowPointer<T> source = sources(row);
    if (target == nullptr || !source.valid) continue;
    const int channel = (i % steps) * width;
    if (arguments.value_copy_vectorized) {
      *reinterpret_cast<uint4*>(target + channel) =
          *reinterpret_cast<const uint4*>(source.data + channel);
    } else {
      target[channel] = source.data[channel];
    }
  }
}

template <class T, int kPitch>
__global__ void __launch_bounds__(kAttentionWarps* kWarpSize)
    key_prologue_kernel(const __grid_constant__ KernelArguments arguments) {
  constexpr int kRows = kKeyTileRows<kPitch>;
  constexpr int kThreads = kAttentionWarps * kWarpSize;
  const AttentionParams& p = arguments.params;
  const PrologueRows rows(arguments, kRows);
  const SharedTile<T, kPitch> tile{reinterpret_cast<T*>(shared_memory())};
  if (arguments.key_target.data != nullptr) {
    load_tile<kRows, kPitch, kThreads>(
        tile, PrologueSource<T>{rows, p.key, p.past_key, arguments.copies_past_key},
        static_cast<int>(p.head_dim), arguments.key_copy_vectorized);
    cp_async_commit();
  }
  if (p.present_value.data != nullptr) copy_values<kRows, T>(rows);
  if (arguments.key_target.data == nullptr) return;
  cp_async_wait<0>();
  sync_threads();
  const float largest = transform_keys<kRows>(tile, rows);
  sync_threads();
  store_keys<kRows, T>(tile, rows);
  if (arguments.key_norms != nullptr && lane_index() == 0) {
    arguments.key_norms[block_index() * kAttentionWarps + warp_index()] = largest;
  }
}

}  // namespace qkexport::cuda
