#include "output_shapes.h"

#include "qkexport/op/refusal.h"

namespace qkexport::trt {
namespace {

using nvinfer1::DimensionOperation;
using nvinfer1::DimsExprs;
using nvinfer1::IDimensionExpr;
using nvinfer1::IExprBuilder;

struct Shapes {
  const op::AttentionSpec& spec;
  const op::InputPositions& positions;
  const DimsExprs* inputs;
  IExprBuilder& builder;

  const DimsExprs& of(op::Input input) const { return inputs[positions[input]]; }
  bool has(op::Input input) const { return positions[input] != op::kAbsent; }
  int rank() const { return of(op::kQuery).nbDims; }
  int row_axis() const { return rank() == 3 ? 1 : 2; }

  const IDimensionExpr* constant(int64_t value) const { return builder.constant(value); }

  // D or Dv: the last axis, divided by the heads where they share it.
  const IDimensionExpr* head_dim(op::Input input) const {
    const IDimensionExpr* width = of(input).d[rank() - 1];
    if (rank() == 4) return width;
    return builder.operation(DimensionOperation::kFLOOR_DIV, *width, *constant(spec.num_kv_heads));
  }

  const IDimensionExpr* total() const {
    const IDimensionExpr* fresh = of(op::kKey).d[row_axis()];
    if (!has(op::kPastKey)) return fresh;
    const IDimensionExpr* past = of(op::kPastKey).d[2];
    if (spec.kv_cache == KvCache::kStatic) return past;
    return builder.operation(DimensionOperation::kSUM, *past, *fresh);
  }
};

void write_output(const Shapes& shapes, DimsExprs& output) {
  output = shapes.of(op::kQuery);
  const IDimensionExpr* head_dim_v = shapes.head_dim(op::kValue);
  output.d[output.nbDims - 1] =
      shapes.rank() == 4
          ? head_dim_v
          : shapes.builder.operation(DimensionOperation::kPROD,
                                     *shapes.constant(shapes.spec.num_heads), *head_dim_v);
}

void write_present(const Shapes& shapes, op::Input projection, DimsExprs& present) {
  present.nbDims = 4;
  present.d[0] = shapes.of(op::kQuery).d[0];
  present.d[1] = shapes.constant(shapes.spec.num_kv_heads);
  present.d[2] = shapes.total();
  present.d[3] = shapes.head_dim(projection);
}

}  // namespace

void write_output_shapes(const op::AttentionSpec& spec, const op::InputPositions& positions,
                         const DimsExprs* inputs, DimsExprs* outputs, int num_outputs,
                         IExprBuilder& builder) {
  const Shapes shapes = {spec, positions, inputs, builder};
  const int rank = shapes.rank();
  for (const op::Input input : {op::kQuery, op::kKey, op::kValue}) {
    const int own = shapes.of(input).nbDims;
    if ((own != 3 && own != 4) || own != rank) {
      op::refuse("query, key and value must share rank 3 or 4",
                 std::string(op::kInputNames[input]) + " of rank " + std::to_string(own));
    }
  }
  if (shapes.has(op::kPastKey) && shapes.of(op::kPastKey).nbDims != 4) {
    op::refuse("past_key must have rank 4", std::to_string(shapes.of(op::kPastKey).nbDims));
  }
  write_output(shapes, outputs[op::kOutput]);
  if (num_outputs == 1) return;
  write_present(shapes, op::kKey, outputs[op::kPresentKey]);
  write_present(shapes, op::kValue, outputs[op::kPresentValue]);
}

}  // namespace qkexport::trt
