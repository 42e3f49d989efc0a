// What Python calls for some stacks (memsweep/models/deep/fused_stack.py).
#include "stack.h"

extern "C" bool memsweep_stack_of_few(const void* call, const void* factors);

namespace {

// 0: done; 1: there is no such stack; 2: no memory.
int computed(const StackCall* call, const void* factors) try {
    const bool few = call->batch <= Simd<REAL>::lanes;  // of two vectors, one would be empty
    return (few ? memsweep_stack_of_few(call, factors) : choose_stack<REAL>(*call, factors)) ? 0 : 1;
} catch (const std::bad_alloc&) {
    return 2;
}

struct DroppedStackCall {
    StackCall stack;
    const void* factors;  // [N][B][layers][PLACES][F]
};

}  // namespace

extern "C" int memsweep_stack(const StackCall* call) { return computed(call, nullptr); }

extern "C" int memsweep_dropped_stack(const DroppedStackCall* call) { return computed(&call->stack, call->factors); }
