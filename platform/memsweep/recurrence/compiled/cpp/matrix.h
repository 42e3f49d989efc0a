// What a recurrence of matrix states is given and fills; see matrix.cpp. Letters there.
#pragma once
#include <algorithm>
#include <limits>
#include <type_traits>

#include "lanes.h"
#include "layer.h"

struct MatrixCall {
    int64_t backward, items, horizon, keys, values, decays, chunk;  // decays of a step: 0 (a = 1), 1 or K
    int64_t kept;                                                   // states after chunks: all for a way back, or the last
    double scale;                                                   // s
    const void *query, *key, *value, *decay;                        // [X][T][...], a in place of its logarithm
    const void *read, *erased;                                      // r and e, [X][T][K]: no r, no erasing; no e, e = k
    const void *given, *given_left;                                 // gradients of y, and of the state at the end
    void *states;                                                   // [X][1 + kept][V][K]: the first is given
    void *answers;                                                  // y, [X][T][V]
    void *of_query, *of_key, *of_value, *of_decay, *of_read, *of_erased, *of_start;
};

enum Erased { NOTHING, WRITTEN, OTHERS };  // e = 0, e = k, another e
enum Decay { NONE, ALL, EACH };            // a = 1, one a for all keys, one for each

// Rows of S whose sums over rows are taken together.
constexpr int TOGETHER = REGISTERS >= 32 ? 4 : 2;

// A gradient shrinks like a^k, and a processor multiplies subnormal numbers many times more slowly.
template <class R> void without_subnormals(Vec<R>* grad, long count) {
    const R least = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
    for (long k = 0; k < count; ++k) grad[k] = (grad[k] < least) & (grad[k] > -least) ? Vec<R>{} : grad[k];
}
