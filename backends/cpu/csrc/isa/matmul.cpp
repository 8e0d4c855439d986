// Linear layers over weights in their stored formats. A task decodes a few matrix rows once and meets every activation
// row.
#include "../parallel.hpp"
#include "dot_stored.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {
namespace {

// x's rows, quantised where asked, as pointers.
std::vector<const float*> prepare(const float* x, int64_t rows, int64_t k, bool quantise, std::vector<float>& held) {
    if (quantise) {
        held.resize(size_t(rows * k));
        parallel_for((rows + 7) / 8, rows * k * 16, [&](int64_t task) {
            for (int64_t t = task * 8; t < std::min(rows, task * 8 + 8); ++t)
                quantise_row(x + t * k, k, held.data() + t * k);
        });
        x = held.data();
    }
    std::vector<const float*> at(static_cast<size_t>(rows));
    for (int64_t t = 0; t < rows; ++t) at[size_t(t)] = x + t * k;
    return at;
}

// Columns first .. first + count - 1 of y = x w^T; y's rows are `stride` apart.
void columns_of(const std::vector<const float*>& x, const Weight& w, int64_t first, int64_t count, float* y,
                int64_t stride) {
    std::vector<float*> out(x.size());
    for (size_t t = 0; t < x.size(); ++t) out[t] = y + int64_t(t) * stride;
    dot_weight(x.data(), int64_t(x.size()), w, first, count, out.data());
}

}  // namespace

void linear(const float* x, int64_t rows, const Weight& w, bool quantise, float* y) {
    if (rows == 0) return;
    std::vector<float> held;
    const auto at = prepare(x, rows, w.in, quantise && quantised(w), held);
    parallel_for((w.out + kColumns - 1) / kColumns, rows * w.out * w.in, [&](int64_t task) {
        const int64_t first = task * kColumns, count = std::min(kColumns, w.out - first);
        columns_of(at, w, first, count, y + first, w.out);
    });
}

void grouped_linear(const float* x, int64_t rows, int64_t groups, const Weight& w, float* y) {
    if (rows == 0) return;
    const int64_t width = w.out / groups, tasks = (width + kColumns - 1) / kColumns;
    parallel_for(groups * tasks, rows * w.out * w.in, [&](int64_t task) {
        const int64_t group = task / tasks, first = task % tasks * kColumns, count = std::min(kColumns, width - first);
        std::vector<const float*> at(static_cast<size_t>(rows));
        for (int64_t t = 0; t < rows; ++t) at[size_t(t)] = x + (t * groups + group) * w.in;
        columns_of(at, w, group * width + first, count, y + group * width + first, w.out);
    });
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
