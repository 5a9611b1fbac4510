// Runs covering cases and reports those that fail: run_cases SEED COUNT MAX_SEQLEN [INDEX].
//
// COUNT 0 covers all pairs of choices; INDEX runs one case alone. Linked against the emulation or
// against CUDA. Exit code 1 where a case fails.
#include <cstdio>
#include <cstdlib>

#include "case_generator.h"
#include "check.h"

int main(int argc, char** argv) {
  using namespace qkexport::cases;
  if (argc < 4) {
    std::fprintf(stderr, "usage: run_cases SEED COUNT MAX_SEQLEN [INDEX]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a run that is ended has said what it found
  const std::vector<AttentionCase> cases =
      covering_cases(std::strtoull(argv[1], nullptr, 10), std::atoll(argv[2]), std::atoll(argv[3]));
  const long long only = argc > 4 ? std::atoll(argv[4]) : -1;
  int failed = 0;
  int ran = 0;
  double worst = 0.0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (only >= 0 && static_cast<long long>(i) != only) continue;
    const CheckResult result = check_case(cases[i]);
    ++ran;
    if (ran % 100 == 0) std::printf("%d of %zu cases ran\n", ran, cases.size());
    if (result.tolerance > 0.0 && result.error / result.tolerance > worst) {
      worst = result.error / result.tolerance;
    }
    if (result.passed) continue;
    ++failed;
    std::printf("FAILED %zu: %s\n", i, result.message.c_str());
  }
  std::printf("%d cases, %d failed, largest error %.2f of its tolerance\n", ran, failed, worst);
  return failed == 0 ? 0 : 1;
}
