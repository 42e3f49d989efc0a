// A diagonal recurrence whose coefficients change from step to step, for sequences one after the other: each step adds
// to what is given its neighbour's state, times the slope of the later one of the two. See varying.py.
#include <algorithm>
#include <cstdint>

namespace {

struct VaryingCall {
    int64_t backward, complex, sequences, horizon, width;  // width: real numbers of a step, two for a complex unit
    const void *slope, *given;                             // [sequences][T][M]
    void* found;                                           // [sequences][T][M]
};

template <class R> void add_real(const R* slope, const R* source, R* target, long width) {
    for (long k = 0; k < width; ++k) target[k] += slope[k] * source[k];
}

// sign -1: times the conjugated slope
template <class R> void add_complex(const R* slope, const R* source, R* target, long width, R sign) {
    for (long k = 0; k < width; k += 2) {
        const R real = slope[k], imaginary = sign * slope[k + 1];
        target[k] += real * source[k] - imaginary * source[k + 1];
        target[k + 1] += real * source[k + 1] + imaginary * source[k];
    }
}

template <class R> void run(const VaryingCall& call) {
    const long T = call.horizon, M = call.width;
    for (long row = 0; row < call.sequences; ++row) {
        const R* slope = static_cast<const R*>(call.slope) + row * T * M;
        const R* given = static_cast<const R*>(call.given) + row * T * M;
        R* found = static_cast<R*>(call.found) + row * T * M;
        const long first = call.backward ? T - 1 : 0;
        if (T > 0) std::copy(given + first * M, given + (first + 1) * M, found + first * M);
        for (long step = 1; step < T; ++step) {
            const long later = call.backward ? T - step : step;
            const long target = call.backward ? later - 1 : later, source = call.backward ? later : later - 1;
            std::copy(given + target * M, given + (target + 1) * M, found + target * M);
            if (call.complex)
                add_complex<R>(slope + later * M, found + source * M, found + target * M, M, call.backward ? -1 : 1);
            else
                add_real<R>(slope + later * M, found + source * M, found + target * M, M);
        }
    }
}

}  // namespace

extern "C" int memsweep_varying(const VaryingCall* call) {
    run<REAL>(*call);
    return 0;
}
