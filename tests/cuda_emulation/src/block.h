// One thread block in execution: its fibers, who waits for whom, and its shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fiber.h"

namespace cuda_emulation {

inline constexpr int kWarpSize = 32;

// Where a thread can wait; the names appear in reports.
enum class Meeting { kNone, kSyncThreads, kSyncThreadsOr, kSyncWarp, kShuffle, kLdmatrix, kMma };

struct AsyncCopy {
  void* shared;
  const void* global;
  bool valid;
  int group;  // commits seen before it
};

struct Thread {
  Fiber fiber;
  bool done = false;
  int commits = 0;
  std::vector<AsyncCopy> copies;
};

// The lanes of a warp that have arrived at a collective, with what each brought.
struct Warp {
  Meeting meeting = Meeting::kNone;
  int arrived = 0;
  std::array<void*, kWarpSize> payload{};
};

// How the next thread is chosen.
enum class Policy { kForward, kBackward, kRandom, kWarpByWarp };

class Block {
 public:
  Block(int num_threads, std::size_t shared_bytes);

  // Runs every thread to its end; false where something was reported.
  bool run(int64_t block_index, const std::function<void()>& thread, uint64_t seed);

  // Called from the running thread.
  void meet_warp(Meeting meeting, void* payload, void (*execute)(Warp&));
  bool meet_block(Meeting meeting, bool value);
  // Ends the block with a report of up to four pieces. The fiber is abandoned where it stands, so
  // nothing on its stack may own memory.
  [[noreturn]] void fail(const char* what, const char* first = "", const char* joint = "",
                         const char* second = "");

  Thread& current() { return *threads_[current_]; }
  int thread_index() const { return current_; }
  int64_t block_index() const { return block_index_; }
  unsigned char* shared() { return shared_.get(); }
  bool owns_shared(std::size_t offset, std::size_t bytes) const {
    return offset + bytes <= shared_bytes_;
  }
  const std::string& failure() const { return failure_; }

 private:
  static void thread_entry(void* block);
  void set_ready(int thread) { ready_[thread / 64] |= uint64_t{1} << (thread % 64); }
  int next_ready();
  int find_ready(int from) const;
  void wait();
  void finish_barrier();
  void append_place();
  void report_deadlock();
  void check_canary();

  struct FreeDeleter {
    void operator()(unsigned char* memory) const;
  };

  int num_threads_;
  std::size_t shared_bytes_;
  std::unique_ptr<unsigned char, FreeDeleter> shared_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  std::array<uint64_t, 16> ready_{};  // 1024 threads
  const std::function<void()>* thread_ = nullptr;
  std::mt19937_64 random_;
  Policy policy_ = Policy::kForward;
  int64_t block_index_ = 0;
  int current_ = 0;
  int live_ = 0;
  int arrived_ = 0;
  Meeting barrier_ = Meeting::kNone;
  bool barrier_or_ = false;
  bool barrier_result_ = false;
  std::string failure_;
};

// The block that runs on this host thread.
Block& running_block();

}  // namespace cuda_emulation
