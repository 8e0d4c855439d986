// Linear layers over weights in their stored formats. A task decodes a few matrix rows once and meets every activation
// row.
#include "../parallel.hpp"
#include "dot_stored.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {
namespace {

// x's rows, quantised where asked, as pointers.
std::vector<const float*> prepare(const float* x, int64_t rows, int64_t k, bool quantise, Floats& held) {
    if (quantise) x = quantise_rows(x, rows, k, held);
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
    Floats held;
    const auto at = prepare(x, rows, w.in, quantise && quantised(w), held);
    const int64_t block = task_columns(rows);
    parallel_for((w.out + block - 1) / block, rows * w.out * w.in, [&](int64_t task) {
        const int64_t first = task * block, count = std::min(block, w.out - first);
        columns_of(at, w, first, count, y + first, w.out);
    });
}

void grouped_linear(const float* x, int64_t rows, int64_t groups, const Weight& w, float* y) {
    if (rows == 0) return;
    const int64_t width = w.out / groups, block = task_columns(rows), tasks = (width + block - 1) / block;
    parallel_for(groups * tasks, rows * w.out * w.in, [&](int64_t task) {
        const int64_t group = task / tasks, first = task % tasks * block, count = std::min(block, width - first);
        std::vector<const float*> at(static_cast<size_t>(rows));
        for (int64_t t = 0; t < rows; ++t) at[size_t(t)] = x + (t * groups + group) * w.in;
        columns_of(at, w, group * width + first, count, y + group * width + first, w.out);
    });
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
