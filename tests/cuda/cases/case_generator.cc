#include "case_generator.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <tuple>

namespace qkexport::cases {
namespace {

// Levels of each choice; a case is first drawn as one level per choice, and pairs of levels are
// what is covered.
enum Choice {
  kDtype,
  kBatch,
  kSeqlenQ,
  kSeqlenKv,
  kCache,
  kHeads,
  kHeadDim,
  kHeadDimV,
  kLayout,
  kNorm,
  kAxis,
  kGain,
  kBias,
  kSideType,
  kNormalizeKey,
  kSegments,
  kRotaryKind,
  kRotaryDim,
  kPositions,
  kKeyRotary,
  kMask,
  kMaskType,
  kHeadScale,
  kCausality,
  kWindow,
  kScale,
  kSoftcap,
  kLengths,
  kPresents,
  kFillKind,
  kNumChoices
};

constexpr std::array<int, kNumChoices> kLevels = {3, 3, 10, 10, 5, 6, 18, 4, 5, 3, 2, 3, 2, 2, 2,
                                                  3, 5, 4,  4,  2, 8, 3,  4, 3, 5, 4, 2, 2, 3, 5};

using Levels = std::array<int, kNumChoices>;
using Pair = std::tuple<int, int, int, int>;

constexpr std::array<int64_t, 10> kSizes = {1, 2, 31, 33, 63, 64, 65, 127, 129, 257};
constexpr std::array<int64_t, 18> kHeadDims = {6,  8,  16, 20,  24,  32,  33,  40,  64,
                                               72, 80, 96, 112, 128, 160, 192, 256, 512};
constexpr std::array<DataType, 3> kTypes = {DataType::kFloat16, DataType::kBFloat16,
                                            DataType::kFloat32};

Levels draw_levels(std::mt19937_64& random) {
  Levels levels;
  for (int i = 0; i < kNumChoices; ++i) {
    levels[i] = std::uniform_int_distribution<int>(0, kLevels[i] - 1)(random);
  }
  return levels;
}

template <class Visit>
void for_each_pair(const Levels& levels, Visit visit) {
  for (int i = 0; i < kNumChoices; ++i) {
    for (int j = i + 1; j < kNumChoices; ++j) visit(Pair{i, levels[i], j, levels[j]});
  }
}

void set_sizes(AttentionCase& c, const Levels& l, int64_t max_seqlen) {
  static constexpr std::array<std::array<int64_t, 2>, 6> kHeadCounts = {
      {{1, 1}, {2, 2}, {4, 2}, {3, 1}, {8, 1}, {6, 3}}};
  c.dtype = kTypes[l[kDtype]];
  c.batch_size = l[kBatch] + 1;
  c.seqlen_q = std::min(kSizes[l[kSeqlenQ]], max_seqlen);
  c.seqlen_kv = std::min(kSizes[l[kSeqlenKv]], max_seqlen);
  c.num_heads = kHeadCounts[l[kHeads]][0];
  c.num_kv_heads = kHeadCounts[l[kHeads]][1];
  c.head_dim = kHeadDims[l[kHeadDim]];
  static constexpr std::array<int64_t, 4> kValueDims = {0, 24, 64, 130};
  c.head_dim_v = l[kHeadDimV] == 0 ? c.head_dim : kValueDims[l[kHeadDimV]];
  if (l[kCache] == 1) c.seqlen_past = 37;
  if (l[kCache] == 2) c.seqlen_past = 128;
  if (l[kCache] == 3) c.cache_rows = c.seqlen_kv + 41;
  if (l[kCache] == 4) c.seqlen_past = 600;  // few queries split so many keys
  c.heads_first = l[kLayout] == 1 || l[kLayout] == 3;
  c.row_padding = l[kLayout] == 2 ? 8 : l[kLayout] == 3 ? 3 : 0;
  c.misalignment = l[kLayout] == 4 ? 1 : 0;
}

void set_norm(AttentionCase& c, const Levels& l) {
  c.qk_norm = static_cast<QkNorm>(l[kNorm]);
  c.norm_axis = static_cast<NormAxis>(l[kAxis]);
  c.gain = static_cast<GainShape>(l[kGain]);
  c.bias = l[kBias] == 1;
  c.float_gains = l[kSideType] == 1;
  c.normalize_key = l[kNormalizeKey] == 0;
  c.num_segments = l[kSegments] + 1;
  if (c.num_segments > 1) c.seqlen_kv = c.seqlen_q;
  if (c.cache_rows > 0) c.cache_rows = c.seqlen_kv + 41;
}

void set_rotary(AttentionCase& c, const Levels& l) {
  static constexpr std::array<Rotary, 5> kKinds = {Rotary::kNone, Rotary::kAfterNorm,
                                                   Rotary::kAfterNorm, Rotary::kBeforeNorm,
                                                   Rotary::kBeforeNorm};
  c.rotary = kKinds[l[kRotaryKind]];
  c.interleaved = l[kRotaryKind] % 2 == 0;
  const int64_t half = std::max<int64_t>(2, c.head_dim / 4 * 2);
  c.rotary_dim = l[kRotaryDim] % 2 == 0 && c.head_dim % 2 == 0 ? c.head_dim : half;
  c.full_width = l[kRotaryDim] >= 2;
  c.position_ids = l[kPositions] >= 2;
  c.invalid_position = l[kPositions] == 3;
  c.rotary_per_head = l[kPositions] == 1;
  c.separate_key_rotary = l[kKeyRotary] == 1;
}

void set_scores(AttentionCase& c, const Levels& l) {
  c.mask = static_cast<MaskShape>(l[kMask]);
  c.mask_dtype = l[kMaskType] == 0   ? DataType::kBool
                 : l[kMaskType] == 1 ? c.dtype
                                     : DataType::kFloat32;
  c.head_scale = static_cast<ScaleShape>(l[kHeadScale]);
  c.causal = static_cast<Causal>(l[kCausality]);
  static constexpr std::array<std::array<int64_t, 2>, 5> kWindows = {
      {{-1, -1}, {17, -1}, {-1, 5}, {40, 9}, {0, 0}}};
  c.window_left = kWindows[l[kWindow]][0];
  c.window_right = kWindows[l[kWindow]][1];
  static constexpr std::array<float, 4> kScales = {0.125f, 1.0f, 0.02f, -0.3f};
  c.scale = kScales[l[kScale]];
  c.softcap = l[kSoftcap] == 1 ? 5.0f : 0.0f;
  c.kv_lengths = l[kLengths] == 1;
  c.presents = static_cast<Presents>(l[kPresents]);
  if (c.presents == Presents::kAliased && c.cache_rows == 0) c.presents = Presents::kCopied;
  c.fill = static_cast<Fill>(l[kFillKind]);
}

AttentionCase make_case(const Levels& levels, uint64_t seed, int64_t max_seqlen) {
  AttentionCase c;
  set_sizes(c, levels, max_seqlen);
  set_norm(c, levels);
  set_rotary(c, levels);
  set_scores(c, levels);
  c.seed = seed;
  return c;
}

std::set<Pair> all_pairs() {
  std::set<Pair> pairs;
  for (int i = 0; i < kNumChoices; ++i) {
    for (int j = i + 1; j < kNumChoices; ++j) {
      for (int a = 0; a < kLevels[i]; ++a) {
        for (int b = 0; b < kLevels[j]; ++b) pairs.insert({i, a, j, b});
      }
    }
  }
  return pairs;
}

// The best of a few draws, the first of which contains a pair that is still missing.
Levels best_levels(const std::set<Pair>& missing, std::mt19937_64& random) {
  constexpr int kDraws = 20;
  Levels best{};
  int best_gain = -1;
  for (int draw = 0; draw < kDraws; ++draw) {
    Levels levels = draw_levels(random);
    if (!missing.empty()) {
      const auto& [i, a, j, b] = *missing.begin();
      levels[i] = a;
      levels[j] = b;
    }
    int gain = 0;
    for_each_pair(levels, [&](const Pair& pair) { gain += missing.count(pair) > 0 ? 1 : 0; });
    if (gain > best_gain) {
      best_gain = gain;
      best = levels;
    }
  }
  return best;
}

}  // namespace

std::vector<AttentionCase> covering_cases(uint64_t seed, int64_t count, int64_t max_seqlen) {
  std::mt19937_64 random(seed);
  std::set<Pair> missing = all_pairs();
  std::vector<AttentionCase> cases;
  while (count > 0 ? static_cast<int64_t>(cases.size()) < count : !missing.empty()) {
    const Levels levels = best_levels(missing, random);
    for_each_pair(levels, [&](const Pair& pair) { missing.erase(pair); });
    cases.push_back(make_case(levels, random() % 1000000, max_seqlen));
  }
  return cases;
}

}  // namespace qkexport::cases
