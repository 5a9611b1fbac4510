// A stack and the point where its execution stands.
#pragma once

#include <cstddef>

namespace cuda_emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next resume() call entry(argument) on a fresh stack; whatever ran on it is forgotten.
  void start(void (*entry)(void*), void* argument);

  // Runs the fiber until it suspends. Called from the scheduler's own stack.
  void resume();

  // Back to the scheduler. Called on the fiber's stack; `last` where it will not be resumed.
  void suspend(bool last);

 private:
  struct State;
  State* state_;
};

}  // namespace cuda_emulation
