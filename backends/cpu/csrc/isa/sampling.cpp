// Masks, penalties, the draw, logprobs and the acceptance of drafts. Each row is worked on alone.
#include <cmath>
#include <limits>

#include "../parallel.hpp"
#include "dot.hpp"
#include "philox.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;
constexpr int kGaps = 24;  // no noise exceeds 23: -log(-log(1 - 2^-33)) = 22.87

// For a token `gap` below the best score so far: noise is large enough to win only where the word is above
// kThresholds[floor(gap)]. Conservative: u > exp(-exp(-gap)) is what it would take.
struct Thresholds {
    uint32_t word[kGaps];
    Thresholds() {
        for (int gap = 0; gap < kGaps; ++gap)
            word[gap] = uint32_t(std::max(0.0, std::exp(-std::exp(-double(gap))) * 0x1p32 - 2.0));
    }
};

int64_t argmax(const float* x, int64_t n) {
    return std::max_element(x, x + n) - x;
}

// argmax of score + noise in order of id, the lower id first; score is -inf where min_p removed the token.
int64_t draw(const float* logits, int64_t vocab, float temperature, float low, uint64_t seed, uint32_t position,
             uint32_t sample) {
    static const Thresholds thresholds;
    const float most = logits[argmax(logits, vocab)];
    float best = kNone;
    int64_t winner = 0;
    for (int64_t block = 0; block < vocab; block += 4) {
        std::array<uint32_t, 4> words{};
        bool drawn = false;
        for (int64_t id = block; id < std::min(block + 4, vocab); ++id) {
            const float score = (logits[id] - most) / temperature;
            const float gap = best - score;
            if (!(score >= low) || score == kNone || gap >= float(kGaps)) continue;
            if (!drawn) {
                words = philox4x32({uint32_t(block / 4), position, 0, sample}, uint32_t(seed), uint32_t(seed >> 32));
                drawn = true;
            }
            const uint32_t word = words[size_t(id - block)];
            if (gap > 1.0f && word < thresholds.word[int(gap) - 1]) continue;  // one lower, for what rounding may do
            const float total = score + gumbel(word);
            if (total > best) {
                best = total;
                winner = id;
            }
        }
    }
    return winner;
}

}  // namespace

void sample_tokens(const float* logits, int64_t rows, int64_t vocab, const float* temperature, const float* min_p,
                   const int64_t* seed, const int64_t* sample, const int64_t* position, int64_t* out) {
    parallel_for(rows, rows * vocab * 8, [&](int64_t t) {
        const float* row = logits + t * vocab;
        if (!temperature || temperature[t] < kGreedyBelow) {
            out[t] = argmax(row, vocab);
            return;
        }
        const float low = min_p ? float(std::log(double(min_p[t]))) : kNone;
        out[t] = draw(row, vocab, temperature[t], low, uint64_t(seed[t]), uint32_t(position[t]), uint32_t(sample[t]));
    });
}

void apply_token_mask(const float* logits, int64_t rows, int64_t vocab, const int32_t* mask, float* out) {
    const int64_t words = (vocab + 31) / 32;
    for (int64_t t = 0; t < rows; ++t)
        for (int64_t v = 0; v < vocab; ++v)
            out[t * vocab + v] = mask[t * words + v / 32] >> (v & 31) & 1 ? logits[t * vocab + v] : kNone;
}

void apply_penalties(const float* logits, int64_t rows, int64_t vocab, const uint8_t* prompt_seen,
                     const int32_t* counts, const float* repetition, const float* presence, const float* frequency,
                     float* out) {
    for (int64_t t = 0; t < rows; ++t)
        for (int64_t i = t * vocab; i < (t + 1) * vocab; ++i) {
            float x = logits[i];
            if (prompt_seen[i] || counts[i] > 0) x = std::min(x > 0 ? x / repetition[t] : x * repetition[t], FLT_MAX);
            out[i] = x - frequency[t] * float(counts[i]) - presence[t] * float(counts[i] > 0);
        }
}

void top_logprobs(const float* logits, int64_t rows, int64_t vocab, const int64_t* tokens, int64_t k, float* logprob,
                  int32_t* rank, int64_t* ids, float* values) {
    parallel_for(rows, rows * vocab * 32, [&](int64_t t) {
        const float* x = logits + t * vocab;
        const float most = x[argmax(x, vocab)], own = x[tokens[t]];
        double mass = 0;
        int32_t before = 0;
        for (int64_t v = 0; v < vocab; ++v) {
            mass += std::exp(double(x[v] - most));
            before += x[v] > own || (x[v] == own && v < tokens[t]);
        }
        const double total = double(most) + std::log(mass);
        logprob[t] = float(double(own) - total);
        rank[t] = 1 + before;
        std::vector<int32_t> order(static_cast<size_t>(vocab));
        for (int64_t v = 0; v < vocab; ++v) order[size_t(v)] = int32_t(v);
        std::partial_sort(order.begin(), order.begin() + k, order.end(),
                          [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
        for (int64_t i = 0; i < k; ++i) {
            ids[t * k + i] = order[size_t(i)];
            values[t * k + i] = float(double(x[order[size_t(i)]]) - total);
        }
    });
}

void verify_drafts(const int64_t* target, const int64_t* drafts, const int32_t* num_drafts, int64_t rows, int64_t width,
                   int32_t* counts) {
    for (int64_t t = 0; t < rows; ++t) {
        int32_t held = 0;
        while (held < std::min<int64_t>(num_drafts[t], width) &&
               target[t * (width + 1) + held] == drafts[t * width + held])
            ++held;
        counts[t] = 1 + held;
    }
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
