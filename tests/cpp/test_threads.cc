// Results do not depend on who computes them, and calls from many threads do not disturb each
// other. Built with QKEXPORT_SANITIZE=thread this looks for races.
#include <thread>

#include "problem.h"
#include "testing.h"
#include "thread_pool.h"

namespace {

using namespace testing;

Sizes busy(int64_t seqlen_q, int64_t seqlen_kv) {
  Sizes s;
  s.batch_size = 2;
  s.num_heads = 4;
  s.num_kv_heads = 2;
  s.seqlen_q = seqlen_q;
  s.seqlen_kv = seqlen_kv;
  s.head_dim = s.head_dim_v = 32;
  return s;
}

std::vector<double> run_on_pool(Problem& p, int64_t workers) {
  const auto& kernels = *qkexport::cpu::find_kernels(nullptr);
  std::vector<char> workspace(qkexport::cpu::workspace_size(kernels, p.params, workers));
  CHECK(qkexport::cpu::run(kernels, p.params, workspace.data(), workspace.size(),
                           qkexport::cpu::shared_pool(workers)) == Status::kSuccess);
  std::vector<double> result;
  for (int64_t i = 0; i < p.output.size(); ++i) result.push_back(p.output.get(i));
  return result;
}

TEST(a_fixed_number_of_threads_gives_the_same_bits_every_time) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const int64_t seqlen_q : {1, 30, 250}) {
      Problem p(busy(seqlen_q, 1500), type);
      const std::vector<double> first = run_on_pool(p, 3);
      for (int repeat = 0; repeat < 5; ++repeat) CHECK(run_on_pool(p, 3) == first);
    }
  }
}

TEST(a_pool_gives_what_one_thread_gives) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    // Row tiles of values far out of range may be left to other kernels.
    for (const double magnitude : {1.0, 1e30}) {
      Problem p(busy(250, 700), type);
      for (int64_t i = 0; i < p.value.size(); ++i) p.value.set(i, p.value.get(i) * magnitude);
      CHECK(run_on_pool(p, 4) == run_on_pool(p, 1));
    }
  }
}

TEST(many_callers_share_the_pool) {
  std::vector<std::thread> callers;
  std::vector<int> good(4, 0);
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([caller, &good] {
      Problem p(busy(60 + caller * 40, 500), DataType::kFloat32, static_cast<unsigned>(caller));
      const std::vector<double> exact = Exact(p).output();
      for (int repeat = 0; repeat < 10; ++repeat) {
        run_on_pool(p, 3);
        good[static_cast<size_t>(caller)] += worst_error(p.output, exact) <= 1.0;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const int count : good) CHECK(count == 10);
}

}  // namespace
