#include <cstring>

#include "testing.h"

int main(int argc, char** argv) {
  testing::full_grid() = argc > 1 && std::strcmp(argv[1], "all") == 0;
  for (const testing::Test& test : testing::tests()) {
    const int before = testing::failures();
    test.function();
    std::printf("%s %s\n", testing::failures() == before ? "ok  " : "FAIL", test.name);
  }
  return testing::failures() == 0 ? 0 : 1;
}
