// What Python calls for some stacks (memsweep/models/deep/fused_stack.py).
#include "stack.h"

extern "C" bool memsweep_stack_of_few(const void* call);

// 0: done; 1: there is no such stack; 2: no memory.
extern "C" int memsweep_stack(const StackCall* call) try {
    const bool few = call->batch <= Simd<REAL>::lanes;  // of two vectors, one would be empty
    return (few ? memsweep_stack_of_few(call) : choose_stack<REAL>(*call)) ? 0 : 1;
} catch (const std::bad_alloc&) {
    return 2;
}
