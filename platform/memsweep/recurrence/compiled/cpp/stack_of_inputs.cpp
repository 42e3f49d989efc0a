// What Python calls for some stacks without an encoder (memsweep/models/deep/no_encoder/compiled.py).
#include "stack_of_inputs.h"

extern "C" bool memsweep_stack_of_few_inputs(const void* call, const void* factors);

namespace {

struct StackOfInputsCall {
    StackCall stack;
    const void* factors;  // [N][B][layers][PLACES][F], or null
};

}  // namespace

// 0: done; 1: there is no such stack; 2: no memory.
extern "C" int memsweep_stack_of_inputs(const StackOfInputsCall* call) try {
    const bool few = call->stack.batch <= Simd<REAL>::lanes;  // of two vectors, one would be empty
    const bool known = few ? memsweep_stack_of_few_inputs(&call->stack, call->factors)
                           : choose_stack_of_inputs<REAL>(call->stack, call->factors);
    return known ? 0 : 1;
} catch (const std::bad_alloc&) {
    return 2;
}
