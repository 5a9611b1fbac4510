// Shape expressions as TensorRT hands them to plugins, over the input dimensions of one engine.
#pragma once

#include <NvInferRuntime.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace qkexport::host {

// Dimensions of every input of one call: value of input i, axis d.
using InputDims = std::vector<std::vector<int64_t>>;

// A constant, an input dimension, or an operation on two expressions.
class Expression : public nvinfer1::IDimensionExpr, private nvinfer1::apiv::VDimensionExpr {
 public:
  static std::unique_ptr<Expression> constant(int64_t value);
  static std::unique_ptr<Expression> input_dim(int input, int axis);
  static std::unique_ptr<Expression> operation(nvinfer1::DimensionOperation op,
                                               const Expression& first, const Expression& second);

  int64_t evaluate(const InputDims& dims) const;

 private:
  enum class Kind { kConstant, kInputDim, kOperation };
  explicit Expression(Kind kind) : kind_(kind) { mImpl = this; }

  bool isConstant() const override { return kind_ == Kind::kConstant; }
  int64_t getConstantValue() const override { return value_; }
  bool isSizeTensor() const override { return false; }

  Kind kind_;
  int64_t value_ = 0;
  int input_ = 0;
  int axis_ = 0;
  nvinfer1::DimensionOperation op_ = nvinfer1::DimensionOperation::kSUM;
  const Expression* first_ = nullptr;
  const Expression* second_ = nullptr;
};

// Makes expressions and owns them.
class ExpressionBuilder : public nvinfer1::IExprBuilder, private nvinfer1::apiv::VExprBuilder {
 public:
  ExpressionBuilder() { mImpl = this; }

  const Expression* input_dim(int input, int axis);

 private:
  const nvinfer1::IDimensionExpr* constant(int64_t value) override;
  const nvinfer1::IDimensionExpr* operation(nvinfer1::DimensionOperation op,
                                            const nvinfer1::IDimensionExpr& first,
                                            const nvinfer1::IDimensionExpr& second) override;
  const nvinfer1::IDimensionExpr* declareSizeTensor(int32_t, const nvinfer1::IDimensionExpr&,
                                                    const nvinfer1::IDimensionExpr&) override {
    return nullptr;  // sizes that depend on data are not driven here
  }
  const Expression* keep(std::unique_ptr<Expression> expression);

  std::vector<std::unique_ptr<Expression>> owned_;
};

}  // namespace qkexport::host
