// How the one thread of the host goes from fiber to fiber: each has a stack of its own, and so has the scheduler.
//
// Included by simulator.cpp. A few instructions where they are known, else the C library's contexts: CUDASIM_UCONTEXT.

#ifndef PICOGRAD_CUDASIM_STACKS_H
#define PICOGRAD_CUDASIM_STACKS_H

#if !(defined(__x86_64__) && defined(__ELF__)) && !defined(CUDASIM_UCONTEXT)
#define CUDASIM_UCONTEXT
#endif
#ifdef CUDASIM_UCONTEXT
#include <ucontext.h>
#endif

namespace cudasim {

#ifndef CUDASIM_UCONTEXT
extern "C" void picograd_cudasim_switch(void** save, void* load);
asm(R"(
.text
.globl picograd_cudasim_switch
.hidden picograd_cudasim_switch
picograd_cudasim_switch:
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
)");

static void prepare_stack(Fiber& fiber, void (*entry)()) {
  // System V AMD64 ABI 3.2.2: at a function's entry, rsp + 8 is a multiple of 16.
  void** top = (void**)(fiber.stack + STACK_BYTES - 24);
  *top = nullptr;
  *--top = (void*)entry;
  for (int32 i = 0; i < 6; i++) *--top = nullptr;  // the six saved registers
  fiber.stack_pointer = top;
}
static inline void switch_to_scheduler() {
  picograd_cudasim_switch(&running->stack_pointer, scheduler_stack_pointer);
}
static inline void switch_to_fiber() { picograd_cudasim_switch(&scheduler_stack_pointer, running->stack_pointer); }
#else
static ucontext_t contexts[MAX_THREADS], scheduler_context;

static void prepare_stack(Fiber& fiber, void (*entry)()) {
  ucontext_t& context = contexts[&fiber - fibers];
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
static inline void switch_to_scheduler() { swapcontext(&contexts[running - fibers], &scheduler_context); }
static inline void switch_to_fiber() { swapcontext(&scheduler_context, &contexts[running - fibers]); }
#endif

}  // namespace cudasim

#endif
