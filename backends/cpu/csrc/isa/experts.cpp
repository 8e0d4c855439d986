// The mixture of experts: routing, sorting rows by expert, the experts themselves, and the sum of a row's parts.
#include <cmath>

#include "../parallel.hpp"
#include "dot_stored.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {
namespace {

// min(g, limit), u clamped to [-limit, limit], silu(g) * u * weight.
float gated(float g, float u, float limit, float weight) {
    g = std::min(g, limit);
    u = std::min(std::max(u, -limit), limit);
    return g / (1.0f + std::exp(-g)) * u * weight;
}

// Rows sorted by expert: rows begin[e] .. begin[e+1] - 1 of `in` go through expert e of the three stacks into `out`.
struct Grouped {
    const Weight &w1, &w3, &w2;
    int64_t experts;
    const int32_t* begin;
    std::vector<const float*> in;
    std::vector<float> routing;
    std::vector<float*> out;
    float limit;
    bool quantise;
};

void hidden_columns(const Grouped& g, int64_t e, int64_t first, int64_t count, float* hidden) {
    const int64_t begin = g.begin[e], rows = g.begin[e + 1] - begin, width = g.w1.out;
    float* products = scratch(1, 2 * count * rows);
    std::vector<float*> gate(static_cast<size_t>(rows)), up(static_cast<size_t>(rows));
    for (int64_t t = 0; t < rows; ++t) {
        gate[size_t(t)] = products + 2 * t * count;
        up[size_t(t)] = gate[size_t(t)] + count;
    }
    dot_weight(g.in.data() + begin, rows, expert_of(g.w1, e), first, count, gate.data());
    dot_weight(g.in.data() + begin, rows, expert_of(g.w3, e), first, count, up.data());
    for (int64_t t = 0; t < rows; ++t)
        for (int64_t c = 0; c < count; ++c)
            hidden[(begin + t) * width + first + c] =
                gated(gate[size_t(t)][c], up[size_t(t)][c], g.limit, g.routing[size_t(begin + t)]);
}

void output_columns(const Grouped& g, int64_t e, int64_t first, int64_t count, const float* hidden) {
    const int64_t begin = g.begin[e], rows = g.begin[e + 1] - begin, width = g.w2.in;
    std::vector<const float*> x(static_cast<size_t>(rows));
    std::vector<float*> y(static_cast<size_t>(rows));
    for (int64_t t = 0; t < rows; ++t) {
        x[size_t(t)] = hidden + (begin + t) * width;
        y[size_t(t)] = g.out[size_t(begin + t)] + first;
    }
    dot_weight(x.data(), rows, expert_of(g.w2, e), first, count, y.data());
}

// Calls body(expert, first column, columns) in parallel for every expert that has rows and every block of columns.
template <class Body>
void for_columns(const Grouped& g, int64_t columns, const Body& body) {
    std::vector<int64_t> busy;
    for (int64_t e = 0; e < g.experts; ++e)
        if (g.begin[e + 1] > g.begin[e]) busy.push_back(e);
    const int64_t rows = int64_t(g.in.size()), block = task_columns(rows / int64_t(busy.size()));
    const int64_t tasks = (columns + block - 1) / block;
    parallel_for(int64_t(busy.size()) * tasks, rows * g.w1.out * g.w1.in, [&](int64_t task) {
        const int64_t first = task % tasks * block;
        body(busy[size_t(task / tasks)], first, std::min(block, columns - first));
    });
}

void run(Grouped& g) {
    const int64_t rows = int64_t(g.in.size()), width = g.w1.out;
    const Floats products = floats(rows * width);
    const float* hidden = products.get();
    for_columns(g, width,
                [&](int64_t e, int64_t first, int64_t count) { hidden_columns(g, e, first, count, products.get()); });
    Floats held;
    if (g.quantise && quantised(g.w2)) hidden = quantise_rows(hidden, rows, width, held);
    for_columns(g, g.w2.out,
                [&](int64_t e, int64_t first, int64_t count) { output_columns(g, e, first, count, hidden); });
}

}  // namespace

void gated_mlp(const float* x, int64_t rows, const Weight& w1, const Weight& w3, const Weight& w2, float limit,
               bool quantise, float* y) {
    if (rows == 0) return;
    Floats held;
    const float* in = quantise && quantised(w1) ? quantise_rows(x, rows, w1.in, held) : x;
    const int32_t begin[2] = {0, int32_t(rows)};
    Grouped g{w1, w3, w2, 1, begin, {}, std::vector<float>(size_t(rows), 1.0f), {}, limit, quantise};
    for (int64_t t = 0; t < rows; ++t) {
        g.in.push_back(in + t * w1.in);
        g.out.push_back(y + t * w2.out);
    }
    run(g);
}

void experts(const float* x, int64_t rows, const int32_t* order, const int32_t* offsets, const float* weights,
             int64_t top_k, int64_t num_experts, const Weight& w1, const Weight& w3, const Weight& w2, float limit,
             bool quantise, float* y) {
    const int64_t used = offsets[num_experts];
    std::fill(y + used * w2.out, y + rows * top_k * w2.out, 0.0f);
    if (used == 0) return;
    Floats held;
    const float* in = quantise && quantised(w1) ? quantise_rows(x, rows, w1.in, held) : x;
    Grouped g{w1, w3, w2, num_experts, offsets, {}, {}, {}, limit, quantise};
    for (int64_t i = 0; i < used; ++i) {
        g.in.push_back(in + order[i] / top_k * w1.in);
        g.routing.push_back(weights[order[i]]);
        g.out.push_back(y + i * w2.out);
    }
    run(g);
}

void route(const float* x, int64_t rows, const Weight& gate, const float* bias, int64_t top_k, float scale,
           int32_t* chosen, float* weights) {
    const int64_t count = gate.out;
    std::vector<float> scores(static_cast<size_t>(rows * count));
    linear(x, rows, gate, false, scores.data());
    parallel_for((rows + 7) / 8, rows * count * 32, [&](int64_t task) {
        std::vector<int32_t> ids(static_cast<size_t>(count));
        for (int64_t t = task * 8; t < std::min(rows, task * 8 + 8); ++t) {
            float* s = scores.data() + t * count;
            for (int64_t e = 0; e < count; ++e) {
                // softplus as max(z, 0) + log1p(exp(-|z|)): exact at both ends
                s[e] = std::sqrt(std::max(s[e], 0.0f) + std::log1p(std::exp(-std::fabs(s[e]))));
                ids[size_t(e)] = int32_t(e);
            }
            const auto better = [&](int32_t a, int32_t b) {
                const float left = s[a] + bias[a], right = s[b] + bias[b];
                return left != right ? left > right : a < b;
            };
            std::partial_sort(ids.begin(), ids.begin() + top_k, ids.end(), better);
            float total = 0;
            for (int64_t j = 0; j < top_k; ++j) total += s[ids[size_t(j)]];
            for (int64_t j = 0; j < top_k; ++j) {
                chosen[t * top_k + j] = ids[size_t(j)];
                weights[t * top_k + j] = s[ids[size_t(j)]] / (total + 1e-20f) * scale;
            }
        }
    });
}

void moe_permute(const int32_t* experts, int64_t count, int64_t num_experts, int32_t* order, int32_t* offsets) {
    const auto bucket = [&](int64_t i) {
        return experts[i] >= 0 && experts[i] < num_experts ? experts[i] : num_experts;
    };
    std::vector<int32_t> next(size_t(num_experts + 2), 0);
    for (int64_t i = 0; i < count; ++i) ++next[size_t(bucket(i) + 1)];
    for (int64_t e = 0; e <= num_experts; ++e) next[size_t(e + 1)] += next[size_t(e)];
    for (int64_t e = 0; e <= num_experts; ++e) offsets[e] = next[size_t(e)];
    for (int64_t i = 0; i < count; ++i) order[next[size_t(bucket(i))]++] = int32_t(i);
}

void moe_combine(const float* y, const int32_t* order, int64_t rows, int64_t top_k, int64_t dim, float* out) {
    std::vector<int32_t> place(static_cast<size_t>(rows * top_k));
    for (int64_t i = 0; i < rows * top_k; ++i) place[size_t(order[i])] = int32_t(i);
    for (int64_t t = 0; t < rows; ++t) {
        float* total = out + t * dim;
        std::fill(total, total + dim, 0.0f);
        for (int64_t j = 0; j < top_k; ++j) {
            const float* part = y + place[size_t(t * top_k + j)] * dim;
            for (int64_t d = 0; d < dim; ++d) total[d] += part[d];
        }
    }
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
