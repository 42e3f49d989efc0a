// Gated recurrences, driven gate by gate: the GRU (gru.h) and the LSTM (lstm.h); see memsweep/recurrence/gated.
#include "gru.h"
#include "lstm.h"

struct GatedCall {
    int64_t cells, backward, models, batch, horizon, width;  // cells: LSTM (G = 4 gates), otherwise GRU (G = 3)
    const void *matrix, *bias;   // [N][G][M][M]; of the GRU [N][M], of the LSTM null
    const void *drive, *given;   // [N][B][T][G][M]; gradients of the states [N][B][T][M], where it goes backward
    void *found;                 // states [N][B][T][M]; or gradients of the drive, [N][B][T][G][M]
    void *of_matrix, *of_bias;   // sums are added to what is there
};

template <class R, class Block> void run_gated(const GatedCall& call) {
    const long B = call.batch, T = call.horizon, M = call.width, G = Block::gate_count;
    const auto of = [](const void* all, long size) { return all ? static_cast<const R*>(all) + size : nullptr; };
    const auto into = [](void* all, long size) { return all ? static_cast<R*>(all) + size : nullptr; };
    Block block(M, T, call.backward);
    Buffer<Vec<R>> grads(call.backward ? T * M * V : 1);
    for (long n = 0; n < call.models; ++n) {
        const R *matrix = of(call.matrix, n * G * M * M), *bias = of(call.bias, n * M);
        for (long first = 0; first < B; first += V * Simd<R>::lanes) {
            pack<R>(of(call.drive, n * B * T * G * M), B, first, T, G * M, block.gates());
            block.forward(matrix, bias);
            if (!call.backward) {
                unpack<R>(block.states(), B, first, T * M, into(call.found, n * B * T * M));
                continue;
            }
            typename Simd<R>::Int own[V] = {};
            mark<R>(B, first, own);
            pack<R>(of(call.given, n * B * T * M), B, first, T, M, grads);
            silence<R>(grads, T * M, own);
            block.backward(matrix, grads, into(call.of_matrix, n * G * M * M), into(call.of_bias, n * M));
            unpack<R>(block.gates(), B, first, T * G * M, into(call.found, n * B * T * G * M));
        }
    }
}

// What Python calls (kernel.py), for some models. 0: done; 2: no memory.
extern "C" int memsweep_gated(const GatedCall* call) try {
    call->cells ? run_gated<REAL, LstmBlock<REAL>>(*call) : run_gated<REAL, GatedBlock<REAL>>(*call);
    return 0;
} catch (const std::bad_alloc&) {
    return 2;
}
