// Expectations of a test program: a failed one is printed with its line and counted.
#pragma once

#include <cstdio>

inline int& failed_expectations() {
  static int count = 0;
  return count;
}

#define EXPECT(condition)                                                        \
  do {                                                                           \
    if (!(condition)) {                                                          \
      std::printf("%s:%d: EXPECT(%s) failed\n", __FILE__, __LINE__, #condition); \
      ++failed_expectations();                                                   \
    }                                                                            \
  } while (false)

#define RUN(test)                                                                         \
  do {                                                                                    \
    const int before = failed_expectations();                                             \
    test();                                                                               \
    std::printf("%s %s\n", failed_expectations() == before ? "passed" : "FAILED", #test); \
  } while (false)
