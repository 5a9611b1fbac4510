// The error of every rule about a node: `QKNormAttention <rule>, got <value>.` plus a note.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace qkexport::op {

// Thrown while a node is created or checked, caught once by each adapter.
class Refusal : public std::exception {
 public:
  explicit Refusal(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

[[noreturn]] inline void refuse(const std::string& rule, const std::string& value,
                                const std::string& note = "") {
  std::string message = "QKNormAttention " + rule + ", got " + value + ".";
  if (!note.empty()) message += "\nNote: " + note;
  throw Refusal(message);
}

}  // namespace qkexport::op
