#include "thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace qkexport::cpu {
namespace {

// One parallel region. Tasks are claimed from a counter by whoever is awake, the caller included,
// so a region ends even if no pool thread takes part (after fork there is none).
struct Region {
  void (*task)(void* data, int64_t index);
  void* data;
  int64_t tasks;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};

  void help() {
    for (;;) {
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= tasks) return;
      task(data, index);
      done.fetch_add(1, std::memory_order_release);
    }
  }
};

class ThreadPool {
 public:
  ~ThreadPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(int64_t tasks, void (*task)(void*, int64_t), void* data) {
    const auto region = std::make_shared<Region>();
    region->task = task;
    region->data = data;
    region->tasks = tasks;
    std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
    if (owner.owns_lock()) publish(region, tasks - 1);
    region->help();
    while (region->done.load(std::memory_order_acquire) < tasks) std::this_thread::yield();
  }

 private:
  void publish(const std::shared_ptr<Region>& region, int64_t helpers) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      region_ = region;
      ++generation_;
      while (static_cast<int64_t>(threads_.size()) < helpers) {
        threads_.emplace_back([this] { serve(); });
      }
    }
    wake_.notify_all();
  }

  void serve() {
    int64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      const std::shared_ptr<Region> region = region_;
      lock.unlock();
      region->help();
      lock.lock();
    }
  }

  std::mutex owner_;  // held by the caller whose region the threads serve
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
  std::shared_ptr<Region> region_;
  int64_t generation_ = 0;
  bool stopping_ = false;
};

void run_shared(void* /*context*/, int64_t tasks, void (*task)(void*, int64_t), void* data) {
  // Never destroyed: threads may still wait in it when the process exits.
  static ThreadPool* const pool = new ThreadPool;
  pool->run(tasks, task, data);
}

}  // namespace

Parallel shared_pool(int64_t workers) { return {nullptr, workers, run_shared}; }

}  // namespace qkexport::cpu
