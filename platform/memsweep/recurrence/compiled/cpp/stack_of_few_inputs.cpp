// A stack without an encoder, of sequences that fill one vector at most: half of a usual block.
#define FEW_SEQUENCES
#include "stack_of_inputs.h"

// Whether there is such a stack; call: a StackCall.
extern "C" bool memsweep_stack_of_few_inputs(const void* call, const void* factors) {
    return choose_stack_of_inputs<REAL>(*static_cast<const StackCall*>(call), factors);
}
