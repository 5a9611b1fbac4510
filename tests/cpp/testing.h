// A minimal test runner: TEST(name) { CHECK(...); }.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace testing {

struct Test {
  const char* name;
  void (*function)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Registration {
  Registration(const char* name, void (*function)()) { tests().push_back({name, function}); }
};

inline int& failures() {
  static int count = 0;
  return count;
}

// Whether the program was started with the argument "all": the nightly grid.
inline bool& full_grid() {
  static bool full = false;
  return full;
}

inline void fail(const char* file, int line, const std::string& what) {
  // The first failures tell the story.
  if (++failures() <= 20) std::printf("%s:%d: %s\n", file, line, what.c_str());
}

}  // namespace testing

#define TEST(name)                                                     \
  static void name();                                                  \
  static const testing::Registration registration_##name(#name, name); \
  static void name()

#define CHECK(condition) \
  if (!(condition)) testing::fail(__FILE__, __LINE__, #condition)

#define CHECK_TEXT(condition, text) \
  if (!(condition)) testing::fail(__FILE__, __LINE__, std::string(#condition) + " " + (text))
