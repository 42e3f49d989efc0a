// A causal convolution over a few steps, each channel by itself, and its gradient; see short_convolution.py.
#include <algorithm>
#include <cstdint>
#include <new>

#include "layer.h"

namespace {

struct ShortConvolutionCall {
    int64_t backward, models, batch, horizon, lags, width;
    const void *known, *kernel, *given;  // [N][B][lags - 1 + T][M], [N][M][lags]; gradients of the answers
    void *answers;                       // [N][B][T][M]
    void *of_known, *of_kernel;          // as above
};

template <class R> void run(const ShortConvolutionCall& call) {
    const long T = call.horizon, L = call.lags, M = call.width, row = T * M, longer = (T + L - 1) * M;
    Buffer<R> kernel(L * M), sums(L * M);  // [lags][M]
    for (long n = 0; n < call.models; ++n) {
        const R* given_kernel = static_cast<const R*>(call.kernel) + n * L * M;
        for (long m = 0; m < M; ++m)
            for (long l = 0; l < L; ++l) kernel[l * M + m] = given_kernel[m * L + l];
        std::fill_n(static_cast<R*>(sums), L * M, R(0));
        for (long b = n * call.batch; b < (n + 1) * call.batch; ++b) {
            const R* __restrict known = static_cast<const R*>(call.known) + b * longer;
            if (!call.backward) {
                R* __restrict answers = static_cast<R*>(call.answers) + b * row;
                std::fill_n(answers, row, R(0));
                for (long t = 0; t < T; ++t)
                    for (long l = 0; l < L; ++l)
                        for (long m = 0; m < M; ++m) answers[t * M + m] += kernel[l * M + m] * known[(t + l) * M + m];
                continue;
            }
            const R* __restrict given = static_cast<const R*>(call.given) + b * row;
            R* __restrict of_known = static_cast<R*>(call.of_known) + b * longer;
            std::fill_n(of_known, longer, R(0));
            for (long t = 0; t < T; ++t)
                for (long l = 0; l < L; ++l)
                    for (long m = 0; m < M; ++m) {
                        of_known[(t + l) * M + m] += kernel[l * M + m] * given[t * M + m];
                        sums[l * M + m] += known[(t + l) * M + m] * given[t * M + m];
                    }
        }
        if (!call.backward) continue;
        R* of_kernel = static_cast<R*>(call.of_kernel) + n * L * M;
        for (long m = 0; m < M; ++m)
            for (long l = 0; l < L; ++l) of_kernel[m * L + l] = sums[l * M + m];
    }
}

}  // namespace

// What Python calls, for some models. 0: done; 2: no memory.
extern "C" int memsweep_short_convolution(const ShortConvolutionCall* call) try {
    run<REAL>(*call);
    return 0;
} catch (const std::bad_alloc&) {
    return 2;
}
