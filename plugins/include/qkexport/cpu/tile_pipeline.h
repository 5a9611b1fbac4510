// A tile of keys and several blocks of rows: the weights of a block are computed by the vector
// units while the tile registers multiply the scores of the next.
#pragma once

#include <cstdint>

#include "qkexport/cpu/attend.h"

namespace qkexport::cpu {
inline namespace QKEXPORT_CPU_ISA {

// A block whose scores become weights, row after row.
template <typename Products>
class Weighing {
 public:
  // The scores are there.
  void begin(const RowTile& t, const BlockScores& scores) {
    scores_ = scores;
    next_ = 0;
    rescale_ = false;
    look(t, 0);
  }
  bool ready() const { return next_ == scores_.block->rows; }
  // The next row's largest score is looked for at once, so that its weights need not wait for it.
  void step(const RowTile& t) {
    const float seen = seen_;
    look(t, next_ + 1);
    factors_[next_] = weigh_row<Products>(t, scores_, seen, next_);
    rescale_ = rescale_ || factors_[next_] != 1.0f;
    ++next_;
  }
  RowBlock& finish(const RowTile& t, const KeyTile& tile) {
    while (!ready()) step(t);
    RowBlock& block = *scores_.block;
    Products::accumulate(t, tile, block, scores_.columns, factors_, carry_of(block, rescale_));
    block.started = true;
    return block;
  }

 private:
  void look(const RowTile& t, int64_t row) {
    if (row < scores_.block->rows) seen_ = finish_row(t, scores_, row);
  }

  BlockScores scores_ = {};
  int64_t next_ = 0;
  bool rescale_ = false;
  float seen_ = 0.0f;  // the largest score of the row `next_`
  float factors_[kBlockRows];
};

// How the rows of a block are spread over the asides of the next one's scores.
struct Pace {
  int64_t asides;  // for each step
  int64_t rows;    // of a step

  static Pace of(const Plan& plan, const TileColumns& columns, int64_t asides_per_step) {
    const int64_t steps = (columns.end - columns.begin) / kKeyStep * (plan.head_dim / kDepthStep);
    const int64_t asides = asides_per_step * steps;
    return {asides < kBlockRows ? 1 : asides / kBlockRows, ceil_div(kBlockRows, asides)};
  }
};

// As attend_tile.
template <typename Products, typename Finish>
inline void attend_tile_pipelined(const RowTile& t, const KeyTile& tile, const Sight* sights,
                                  RowBlock* blocks, int64_t count, Finish finish) {
  Weighing<Products> weighings[2];
  Weighing<Products>* before = nullptr;
  int turn = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (sights[i] == Sight::kNone) continue;
    const BlockScores scores = scores_of<Products>(
        t, tile, sights[i], blocks[i], t.scratch.scores + turn * kBlockRows * kTileKeys);
    if (before == nullptr) {
      Products::score(t, tile, scores);
    } else {
      const Pace pace = Pace::of(*t.plan, scores.columns, Products::kAsidesPerStep);
      int64_t left = pace.asides;
      Products::score_beside(t, tile, scores, [&] {
        if (--left > 0) return;
        left = pace.asides;
        for (int64_t row = 0; row < pace.rows && !before->ready(); ++row) before->step(t);
      });
      finish(before->finish(t, tile));
    }
    before = &weighings[turn];
    before->begin(t, scores);
    turn = 1 - turn;
  }
  if (before != nullptr) finish(before->finish(t, tile));
}

}  // namespace QKEXPORT_CPU_ISA
}  // namespace qkexport::cpu
