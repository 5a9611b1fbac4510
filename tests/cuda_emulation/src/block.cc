#include "block.h"

#include <cstdlib>
#include <cstring>

#include "cuda_emulation/control.h"

namespace cuda_emulation {
namespace {

// Shared memory starts as NaN in every type, and so does what a missing copy leaves behind.
constexpr unsigned char kPoison = 0xff;

// Behind the shared memory, where no sanitizer guards it.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kCanaryBytes = 0;
#else
constexpr std::size_t kCanaryBytes = 256;
#endif
constexpr unsigned char kCanary = 0xa5;

thread_local Block* running = nullptr;

const char* name_of(Meeting meeting) {
  switch (meeting) {
    case Meeting::kSyncThreads:
      return "sync_threads";
    case Meeting::kSyncThreadsOr:
      return "sync_threads_or";
    case Meeting::kSyncWarp:
      return "sync_warp";
    case Meeting::kShuffle:
      return "shuffle";
    case Meeting::kLdmatrix:
      return "ldmatrix";
    case Meeting::kMma:
      return "mma";
    default:
      return "nothing";
  }
}

unsigned char* allocate_shared(std::size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 128, bytes + kCanaryBytes + (bytes == 0 ? 1 : 0)) != 0) std::abort();
  return static_cast<unsigned char*>(memory);
}

}  // namespace

Block& running_block() { return *running; }

void Block::FreeDeleter::operator()(unsigned char* memory) const { std::free(memory); }

Block::Block(int num_threads, std::size_t shared_bytes)
    : num_threads_(num_threads),
      shared_bytes_(shared_bytes),
      shared_(allocate_shared(shared_bytes)),
      warps_((num_threads + kWarpSize - 1) / kWarpSize) {
  for (int i = 0; i < num_threads; ++i) threads_.push_back(std::make_unique<Thread>());
}

bool Block::run(int64_t block_index, const std::function<void()>& thread, uint64_t seed) {
  running = this;
  thread_ = &thread;
  block_index_ = block_index;
  random_.seed(seed);
  policy_ = static_cast<Policy>(random_() % 4);
  live_ = num_threads_;
  std::memset(shared_.get(), kPoison, shared_bytes_);
  std::memset(shared_.get() + shared_bytes_, kCanary, kCanaryBytes);
  for (int i = 0; i < num_threads_; ++i) {
    threads_[i]->done = false;
    threads_[i]->commits = 0;
    threads_[i]->fiber.start(&Block::thread_entry, this);
    set_ready(i);
  }
  while (live_ > 0 && failure_.empty()) {
    const int next = next_ready();
    if (next < 0) {
      report_deadlock();
      break;
    }
    ready_[next / 64] &= ~(uint64_t{1} << (next % 64));
    current_ = next;
    threads_[next]->fiber.resume();
  }
  if (failure_.empty()) check_canary();
  return failure_.empty();
}

void Block::thread_entry(void* argument) {
  auto* block = static_cast<Block*>(argument);
  (*block->thread_)();
  Thread& self = block->current();
  if (!self.copies.empty()) block->fail("a thread ended with cp.async copies it never waited for");
  self.done = true;
  --block->live_;
  if (block->arrived_ > 0 && block->arrived_ == block->live_) block->finish_barrier();
  self.fiber.suspend(/*last=*/true);
}

int Block::find_ready(int from) const {
  for (int word = from / 64; word < 16; ++word) {
    uint64_t bits = ready_[word];
    if (word == from / 64) bits &= ~uint64_t{0} << (from % 64);
    if (bits != 0) return word * 64 + __builtin_ctzll(bits);
  }
  return -1;
}

int Block::next_ready() {
  switch (policy_) {
    case Policy::kForward:
      return find_ready(0);
    case Policy::kBackward:
      for (int word = 15; word >= 0; --word) {
        if (ready_[word] != 0) return word * 64 + 63 - __builtin_clzll(ready_[word]);
      }
      return -1;
    default: {
      // Either any thread, or the first ready one of any warp.
      const int unit = policy_ == Policy::kRandom ? 1 : kWarpSize;
      const int start =
          static_cast<int>(random_() % static_cast<uint64_t>(num_threads_)) / unit * unit;
      const int found = find_ready(start);
      return found >= 0 ? found : find_ready(0);
    }
  }
}

void Block::wait() { current().fiber.suspend(/*last=*/false); }

void Block::meet_warp(Meeting meeting, void* payload, void (*execute)(Warp&)) {
  const int self = current_;
  Warp& warp = warps_[self / kWarpSize];
  if (warp.arrived > 0 && warp.meeting != meeting) {
    fail("lanes of one warp are at ", name_of(warp.meeting), " and at ", name_of(meeting));
  }
  warp.meeting = meeting;
  warp.payload[self % kWarpSize] = payload;
  if (++warp.arrived < kWarpSize) {
    wait();
    return;
  }
  if (execute != nullptr) execute(warp);
  warp.arrived = 0;
  const int first = self / kWarpSize * kWarpSize;
  for (int i = first; i < first + kWarpSize; ++i) {
    if (i != self) set_ready(i);
  }
}

bool Block::meet_block(Meeting meeting, bool value) {
  if (arrived_ > 0 && barrier_ != meeting) {
    fail("threads of one block are at ", name_of(barrier_), " and at ", name_of(meeting));
  }
  barrier_ = meeting;
  barrier_or_ = barrier_or_ || value;
  if (++arrived_ == live_) finish_barrier();
  wait();
  return barrier_result_;
}

void Block::finish_barrier() {
  ++counters().barriers;
  arrived_ = 0;
  barrier_result_ = barrier_or_;
  barrier_or_ = false;
  for (int i = 0; i < num_threads_; ++i) {
    if (!threads_[i]->done) set_ready(i);
  }
}

void Block::fail(const char* what, const char* first, const char* joint, const char* second) {
  failure_.append(what).append(first).append(joint).append(second);
  append_place();
  current().fiber.suspend(/*last=*/true);
  std::abort();
}

void Block::append_place() {
  failure_ +=
      " (block " + std::to_string(block_index_) + ", thread " + std::to_string(current_) + ").";
}

void Block::report_deadlock() {
  failure_ = "deadlock: ";
  if (arrived_ > 0) {
    failure_ += std::to_string(arrived_) + " of " + std::to_string(live_) + " threads wait in " +
                name_of(barrier_) + "; ";
  }
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    if (warps_[i].arrived == 0) continue;
    failure_ += std::to_string(warps_[i].arrived) + " lanes of warp " + std::to_string(i) +
                " wait in " + name_of(warps_[i].meeting) + "; ";
  }
  failure_ += "block " + std::to_string(block_index_) + ".";
}

void Block::check_canary() {
  for (std::size_t i = 0; i < kCanaryBytes; ++i) {
    if (shared_.get()[shared_bytes_ + i] == kCanary) continue;
    failure_ = "shared memory was written " + std::to_string(i) + " bytes past its end (block " +
               std::to_string(block_index_) + ").";
    return;
  }
}

}  // namespace cuda_emulation
