// What Python calls: the recurrence of gated.h, for some models. See gated_calls.py.
#include "gated.h"

// 0: done; 2: no memory.
extern "C" int memsweep_gated(const GatedCall* call) try {
    run_gated<REAL>(*call);
    return 0;
} catch (const std::bad_alloc&) {
    return 2;
}
