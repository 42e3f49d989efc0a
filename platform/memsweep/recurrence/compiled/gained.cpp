// What Python calls: the recurrence of gained.h, for some sequences of one model. See gained_calls.py.
#include "gained.h"

// 0: done; 1: there is no such recurrence; 2: no memory.
extern "C" int memsweep_gained(const GainedCall* call) try {
    return choose_gained<REAL>(*call) ? 0 : 1;
} catch (const std::bad_alloc&) {
    return 2;
}
