// The blocks of keys that a tile of queries visits.
#pragma once

#include "device/query_rows.cuh"
#include "device/visibility.cuh"

namespace qkexport::cuda {

// Blocks [first, last) of kBlockN keys; blocks inside [full.begin, full.end) keys are seen whole by
// every row of the tile.
struct KeyBlocks {
  int first;
  int last;
  KeyRange full;

  // Whether the block that starts at `key` needs the mask.
  template <int kBlockN>
  QKEXPORT_DEVICE bool needs_mask(int key) const {
    return key < full.begin || key + kBlockN > full.end;
  }

  // Whether it holds a value that some rows see and others do not. Rows past `length` are zeros
  // for all of them.
  template <int kBlockN>
  QKEXPORT_DEVICE bool needs_guard(int key, int length) const {
    return key < full.begin || (full.end < length && key + kBlockN > full.end);
  }
};

// Both ends of a row's interval grow with its position, so the first and the last row decide.
template <int kBlockM, int kBlockN>
QKEXPORT_DEVICE KeyBlocks key_blocks(const KernelArguments& arguments, const RowMap& map,
                                     const Visibility& visibility, int split) {
  const KeyRange low = visibility(map(0).position);
  const KeyRange high = visibility(map(kBlockM - 1).position);
  KeyBlocks blocks;
  blocks.full = {high.begin, low.end};
  const int first = low.begin / kBlockN;
  const int last = low.begin < high.end ? (high.end + kBlockN - 1) / kBlockN : first;
  const int share = (last - first + arguments.num_splits - 1) / arguments.num_splits;
  blocks.first = first + split * share;
  blocks.last = blocks.first + share < last ? blocks.first + share : last;
  return blocks;
}

}  // namespace qkexport::cuda
