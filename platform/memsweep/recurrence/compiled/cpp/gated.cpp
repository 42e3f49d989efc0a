// Gated layers: the GRU (gru.h) and the LSTM (lstm.h); see memsweep/recurrence/gated.
//
// Sequences stand in the lanes of vectors, a block of them at a time; where they are few, units do (gated_few.h). All go
// some steps at a time: what is kept of these stays in the cache, however long the sequences are. A forward pass that is
// to be gone back leaves what the blocks keep, and what was carried into each part.
#include <optional>

#include "gated_few.h"

struct GatedCall {
    int64_t cells, backward, models, batch, horizon, features, width;  // cells: LSTM (G = 4 gates, C = 2: h and c are
                                                                       // carried), else GRU (G = 3, C = 1: h)
    int64_t steps;                                                     // at a time: S in ceil(T / steps) parts
    const void *matrix, *encoder, *bias, *recalled;  // [N][G][M][M], [N][G][M][F], [N][G][M]; of the GRU [N][M]
    const void *x, *given;                           // [N][B][T][F]; gradients of the states [N][B][T][M]
    void *states, *kept, *carried;                   // [N][B][T][M]; of each step [N][B][T][4][M] and into each part
                                                     // [N][S][C][B][M], where it is to go backward, else null
    void *of_x;                                      // [N][B][T][F], or null
    void *of_matrix, *of_encoder, *of_bias, *of_recalled;  // sums are added to what is there
};

template <class R, class Block> class GatedRun {
public:
    explicit GatedRun(const GatedCall& call)
        : B_(call.batch), T_(call.horizon), F_(call.features), M_(call.width), steps_(call.steps),
          block_(M_, F_, steps_), x_(steps_ * F_ * V), grads_(steps_ * M_ * V), of_x_(steps_ * F_ * V) {}

    void forward(const GatedPlaces<R>& at, long first) {
        const long kept = Block::kept_count * M_;
        for (int c = 0; c < Block::carried_count; ++c) std::fill_n(block_.carried(c), M_ * V, Vec<R>{});
        for (long from = 0; from < T_; from += steps_) {
            const long some = std::min(steps_, T_ - from);
            for (int c = 0; at.carried && c < Block::carried_count; ++c)
                unpack<R>(block_.carried(c), B_, first, M_, M_, at.carried + carried(from, c));
            pack<R>(at.x + from * F_, B_, first, T_ * F_, some * F_, x_);
            block_.forward(at.weights, x_, some);
            unpack<R>(block_.states(), B_, first, T_ * M_, some * M_, at.states + from * M_);
            if (at.kept) unpack<R>(block_.kept(), B_, first, T_ * kept, some * kept, at.kept + from * kept);
            block_.carry(some);
        }
    }

    void backward(const GatedPlaces<R>& at, long first) {
        const long kept = Block::kept_count * M_;
        typename Simd<R>::Int own[V] = {};
        mark<R>(B_, first, own);
        block_.turn(at.weights);
        block_.start_back();
        for (long from = (T_ - 1) / steps_ * steps_; from >= 0; from -= steps_) {
            const long some = std::min(steps_, T_ - from);
            for (int c = 0; c < Block::carried_count; ++c)
                pack<R>(at.carried + carried(from, c), B_, first, M_, M_, block_.carried(c));
            pack<R>(at.kept + from * kept, B_, first, T_ * kept, some * kept, block_.kept());
            block_.restore(some);
            pack<R>(at.x + from * F_, B_, first, T_ * F_, some * F_, x_);
            pack<R>(at.given + from * M_, B_, first, T_ * M_, some * M_, grads_);
            silence<R>(grads_, some * M_, own);
            block_.backward(x_, grads_, at.of_x ? of_x_ + 0 : nullptr, at.gradient, some);
            if (at.of_x) unpack<R>(of_x_, B_, first, T_ * F_, some * F_, at.of_x + from * F_);
        }
    }

private:
    long carried(long from, long which) const { return (from / steps_ * Block::carried_count + which) * B_ * M_; }

    const long B_, T_, F_, M_, steps_;
    Block block_;
    Buffer<Vec<R>> x_, grads_, of_x_;
};

// Whether so many sequences of a block go faster with units in the lanes: by the vectors that both ways have to compute,
// with some time that each sequence costs besides. The numbers are the same.
template <class R> bool is_few(long count, long width) {
    const long each = (width + Simd<R>::lanes - 1) / Simd<R>::lanes;
    return count * (4 * each + 3) <= 3 * V * width;
}

template <class R, class Block> void run_gated(const GatedCall& call) {
    const long B = call.batch, T = call.horizon, F = call.features, M = call.width, G = Block::gate_count;
    const long parts = (T + call.steps - 1) / call.steps;
    const auto of = [](const void* all, long size) { return all ? static_cast<const R*>(all) + size : nullptr; };
    const auto into = [](void* all, long size) { return all ? static_cast<R*>(all) + size : nullptr; };
    constexpr long together = V * Simd<R>::lanes;
    std::optional<GatedRun<R, Block>> run;
    std::optional<FewGated<R, typename Block::Cell>> few;
    for (long n = 0; n < call.models; ++n) {
        const long square = n * G * M * M, wide = n * G * M * F, row = n * G * M, series = n * B * T;
        const GatedPlaces<R> at{
            {of(call.matrix, square), of(call.encoder, wide), of(call.bias, row), of(call.recalled, n * M)},
            {into(call.of_matrix, square), into(call.of_encoder, wide), into(call.of_bias, row),
             into(call.of_recalled, n * M)},
            of(call.x, series * F), of(call.given, series * M), into(call.states, series * M),
            into(call.kept, series * Block::kept_count * M), into(call.carried, n * parts * Block::carried_count * B * M),
            into(call.of_x, series * F)};
        for (long first = 0; first < B; first += together) {
            const long count = std::min(together, B - first);
            if (is_few<R>(count, M)) {
                if (!few || few->count() != count) few.emplace(B, count, T, F, M, call.steps);
                call.backward ? few->backward(at, first) : few->forward(at, first);
            } else {
                if (!run) run.emplace(call);
                call.backward ? run->backward(at, first) : run->forward(at, first);
            }
        }
    }
}

// What Python calls (kernel.py), for some models. 0: done; 2: no memory.
extern "C" int memsweep_gated(const GatedCall* call) try {
    call->cells ? run_gated<REAL, LstmBlock<REAL>>(*call) : run_gated<REAL, GruBlock<REAL>>(*call);
    return 0;
} catch (const std::bad_alloc&) {
    return 2;
}
