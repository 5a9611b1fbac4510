#include "expressions.h"

#include <algorithm>
#include <utility>

namespace qkexport::host {
namespace {

using nvinfer1::DimensionOperation;
using nvinfer1::IDimensionExpr;

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

int64_t apply(DimensionOperation op, int64_t a, int64_t b) {
  switch (op) {
    case DimensionOperation::kSUM:
      return a + b;
    case DimensionOperation::kPROD:
      return a * b;
    case DimensionOperation::kMAX:
      return std::max(a, b);
    case DimensionOperation::kMIN:
      return std::min(a, b);
    case DimensionOperation::kSUB:
      return a - b;
    case DimensionOperation::kEQUAL:
      return a == b;
    case DimensionOperation::kLESS:
      return a < b;
    case DimensionOperation::kFLOOR_DIV:
      return b == 0 ? 0 : floor_div(a, b);
    case DimensionOperation::kCEIL_DIV:
      return b == 0 ? 0 : -floor_div(-a, b);
  }
  return 0;
}

}  // namespace

std::unique_ptr<Expression> Expression::constant(int64_t value) {
  std::unique_ptr<Expression> made(new Expression(Kind::kConstant));
  made->value_ = value;
  return made;
}

std::unique_ptr<Expression> Expression::input_dim(int input, int axis) {
  std::unique_ptr<Expression> made(new Expression(Kind::kInputDim));
  made->input_ = input;
  made->axis_ = axis;
  return made;
}

std::unique_ptr<Expression> Expression::operation(DimensionOperation op, const Expression& first,
                                                  const Expression& second) {
  std::unique_ptr<Expression> made(new Expression(Kind::kOperation));
  made->op_ = op;
  made->first_ = &first;
  made->second_ = &second;
  return made;
}

int64_t Expression::evaluate(const InputDims& dims) const {
  if (kind_ == Kind::kConstant) return value_;
  if (kind_ == Kind::kInputDim) return dims.at(input_).at(axis_);
  return apply(op_, first_->evaluate(dims), second_->evaluate(dims));
}

const Expression* ExpressionBuilder::input_dim(int input, int axis) {
  return keep(Expression::input_dim(input, axis));
}

const IDimensionExpr* ExpressionBuilder::constant(int64_t value) {
  return keep(Expression::constant(value));
}

const IDimensionExpr* ExpressionBuilder::operation(DimensionOperation op,
                                                   const IDimensionExpr& first,
                                                   const IDimensionExpr& second) {
  return keep(Expression::operation(op, static_cast<const Expression&>(first),
                                    static_cast<const Expression&>(second)));
}

const Expression* ExpressionBuilder::keep(std::unique_ptr<Expression> expression) {
  owned_.push_back(std::move(expression));
  return owned_.back().get();
}

}  // namespace qkexport::host
