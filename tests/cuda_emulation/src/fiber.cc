#include "fiber.h"

#include <ucontext.h>

#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_emulation {
namespace {

// Frames of an unrolled kernel are large, and an overflow would damage the heap. Pages that no
// frame reaches cost nothing.
constexpr std::size_t kStackBytes = 1024 * 1024;

}  // namespace

#if defined(__x86_64__)

// Saves the callee-saved registers on the stack in use, stores its pointer and takes up the other
// one. swapcontext would save the signal mask with two system calls, and a block switches fibers
// hundreds of thousands of times.
extern "C" void cuda_emulation_switch(void** save, void* load);
asm(R"(
.text
.globl cuda_emulation_switch
.type cuda_emulation_switch, @function
cuda_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_emulation_switch, .-cuda_emulation_switch
)");

struct Context {
  void* stack_pointer = nullptr;
};

void switch_context(Context& save, Context& load) {
  cuda_emulation_switch(&save.stack_pointer, load.stack_pointer);
}

void prepare_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  // Six registers, the entry as return address, and the alignment a called function expects.
  auto top = reinterpret_cast<std::uintptr_t>(stack + bytes) & ~std::uintptr_t{15};
  auto* words = reinterpret_cast<void**>(top) - 2;
  words[1] = nullptr;
  words[0] = reinterpret_cast<void*>(entry);
  for (int i = 1; i <= 6; ++i) words[-i] = nullptr;
  context.stack_pointer = words - 6;
}

#else

struct Context {
  ucontext_t context;
};

void switch_context(Context& save, Context& load) { swapcontext(&save.context, &load.context); }

void prepare_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&context.context);
  context.context.uc_stack.ss_sp = stack;
  context.context.uc_stack.ss_size = bytes;
  context.context.uc_link = nullptr;
  makecontext(&context.context, entry, 0);
}

#endif

struct Fiber::State {
  Context context;
  unsigned char* stack = nullptr;
  void* fake_stack = nullptr;
  void (*entry)(void*) = nullptr;
  void* argument = nullptr;
};

namespace {

thread_local Context scheduler;
#if defined(__SANITIZE_ADDRESS__)
thread_local const void* scheduler_stack = nullptr;
thread_local std::size_t scheduler_stack_bytes = 0;
#endif
thread_local void (*starting_entry)(void*) = nullptr;
thread_local void* starting_argument = nullptr;

void arrive_on_fiber(void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack, &scheduler_stack_bytes);
#else
  (void)fake_stack;
#endif
}

void fiber_main() {
  arrive_on_fiber(nullptr);
  starting_entry(starting_argument);
  std::abort();  // entries suspend for the last time instead of returning
}

}  // namespace

Fiber::Fiber() : state_(new State) {
  state_->stack = static_cast<unsigned char*>(std::aligned_alloc(4096, kStackBytes));
}

Fiber::~Fiber() {
  std::free(state_->stack);
  delete state_;
}

void Fiber::start(void (*entry)(void*), void* argument) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(state_->stack, kStackBytes);
#endif
  state_->entry = entry;
  state_->argument = argument;
  state_->fake_stack = nullptr;
  prepare_context(state_->context, state_->stack, kStackBytes, fiber_main);
}

void Fiber::resume() {
  starting_entry = state_->entry;
  starting_argument = state_->argument;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, state_->stack, kStackBytes);
  switch_context(scheduler, state_->context);
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#else
  switch_context(scheduler, state_->context);
#endif
}

void Fiber::suspend([[maybe_unused]] bool last) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &state_->fake_stack, scheduler_stack,
                                 scheduler_stack_bytes);
#endif
  switch_context(state_->context, scheduler);
  arrive_on_fiber(state_->fake_stack);
}

}  // namespace cuda_emulation
