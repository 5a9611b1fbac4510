// Which query a row of a block's tile is, and which block this is.
#pragma once

#include "device/platform.cuh"
#include "device/tile_loader.cuh"
#include "kernel_arguments.h"

namespace qkexport::cuda {

// A block owns kBlockM packed rows of one group of query heads that share a kv head. Packed row
// r is position r / heads_per_tile of head first_head + r % heads_per_tile.
struct BlockCoordinates {
  int64_t batch;
  int kv_head;
  int first_head;
  int first_row;
  int split;
};

// Fewer than 2^31 blocks and rows (can_implement), so indices are 32 bits wide: a division of 64
// takes a hundred instructions.
//
// Blocks of one head are neighbours, so that its keys are read while they are in L2. Late rows come
// first: under a causal mask they take longest.
template <int kBlockM>
QKEXPORT_DEVICE BlockCoordinates block_coordinates(const KernelArguments& arguments) {
  const AttentionParams& p = arguments.params;
  const auto num_rows = static_cast<uint32_t>(p.seqlen_q * arguments.heads_per_tile);
  const auto num_heads = static_cast<uint32_t>(p.num_heads);
  const uint32_t tiles = (num_rows + kBlockM - 1) / kBlockM;
  const uint32_t groups = num_heads / arguments.heads_per_tile;
  auto index = static_cast<uint32_t>(block_index());
  BlockCoordinates block;
  block.first_row = static_cast<int>((tiles - 1 - index % tiles) * kBlockM);
  index /= tiles;
  block.split = static_cast<int>(index % arguments.num_splits);
  index /= arguments.num_splits;
  block.first_head = static_cast<int>(index % groups) * arguments.heads_per_tile;
  block.kv_head = block.first_head / static_cast<int>(num_heads / p.num_kv_heads);
  block.batch = index / groups;
  return block;
}

struct QueryRow {
  int position;
  int head;
  bool valid;
};

struct RowMap {
  int num_rows;
  int heads_per_tile;
  int first_head;
  int first_row;

  QKEXPORT_DEVICE RowMap(const KernelArguments& arguments, const BlockCoordinates& block)
      : num_rows(static_cast<int>(arguments.params.seqlen_q) * arguments.heads_per_tile),
        heads_per_tile(arguments.heads_per_tile),
        first_head(block.first_head),
        first_row(block.first_row) {}

  // Rows past the last one answer with the last one's indices and valid == false.
  QKEXPORT_DEVICE QueryRow operator()(int row) const {
    const bool valid = first_row + row < num_rows;
    const int packed = valid ? first_row + row : num_rows - 1;
    if (heads_per_tile == 1) return {packed, first_head, valid};
    return {packed / heads_per_tile, first_head + packed % heads_per_tile, valid};
  }
};

// Rows of the query tile for load_tile.
template <class T>
struct QueryTileRows {
  const AttentionParams& params;
  const RowMap& map;
  int64_t batch;

  QKEXPORT_DEVICE RowPointer<T> operator()(int row) const {
    const QueryRow query = map(row);
    return {static_cast<const T*>(params.query.data) + batch * params.query.batch_stride +
                query.head * params.query.head_stride + query.position * params.query.row_stride,
            query.valid};
  }
};

}  // namespace qkexport::cuda
