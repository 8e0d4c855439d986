// What a finished step changes: tokens are appended, requests end, what was reserved and not used goes back.
#include <algorithm>
#include <span>
#include <string>

#include "scheduler.hpp"

namespace deepinfer {

Committed Scheduler::commit(Step step, std::span<const Token> tokens, std::span<const std::int32_t> counts) {
    refuse_results(step, tokens, counts);
    const InFlight done = std::move(in_flight_.front());
    in_flight_.pop_front();
    committed_ = step;

    Committed result;
    const auto width = static_cast<std::size_t>(1 + limits_.max_drafts);
    for (std::size_t i = 0; i < done.samples.size(); ++i) {
        const Sample& sample = done.samples[i];
        std::int32_t accepted = 0;
        FinishCode code = FinishCode::none;
        const auto found = sequences_.find(sample.request);
        if (found != sequences_.end() && found->second->stay == sample.stay) {
            Sequence& sequence = *found->second;
            sequence.in_flight -= sample.reserved;
            code = append(sequence, tokens.subspan(i * width, static_cast<std::size_t>(counts[i])), accepted);
            offer(sequence);
            if (code == FinishCode::none) {
                trim(sequence);
            } else {
                finish(sample.request);
            }
        }
        result.request.push_back(sample.request);
        result.accepted.push_back(accepted);
        result.finish.push_back(static_cast<std::int32_t>(code));
    }
    retiring_.release(committed_, blocks_, slots_);
    return result;
}

void Scheduler::refuse_results(Step step, std::span<const Token> tokens, std::span<const std::int32_t> counts) const {
    if (in_flight_.empty() || in_flight_.front().step != step) {
        const std::string expected =
            in_flight_.empty() ? "no step is in flight" : "the next is " + std::to_string(in_flight_.front().step);
        throw std::invalid_argument("step " + std::to_string(step) + " cannot be committed: " + expected);
    }
    const auto& samples = in_flight_.front().samples;
    const auto width = static_cast<std::size_t>(1 + limits_.max_drafts);
    if (counts.size() != samples.size() || tokens.size() != samples.size() * width) {
        throw std::invalid_argument("step " + std::to_string(step) + " sampled " + std::to_string(samples.size()) +
                                    " segments: give as many counts, and " + std::to_string(width) +
                                    " tokens for each");
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
        if (counts[i] < 1 || counts[i] > samples[i].reserved) {
            throw std::invalid_argument("request " + std::to_string(samples[i].request) + ": count " +
                                        std::to_string(counts[i]) + " must lie in 1 .. " +
                                        std::to_string(samples[i].reserved));
        }
    }
}

// Appends up to the token that ends the request. A stop token at or before the limit wins over the limit.
FinishCode Scheduler::append(Sequence& sequence, std::span<const Token> tokens, std::int32_t& accepted) {
    for (const Token token : tokens) {
        if (sequence.known() == sequence.limit) break;
        const bool stop = sequence.is_stop(token);
        sequence.tokens.push_back(token);
        ++accepted;
        if (stop) return FinishCode::stop;
    }
    return sequence.known() == sequence.limit ? FinishCode::length : FinishCode::none;
}

// Steps in flight write no position at or beyond cached_upper(), so blocks beyond it go back at once.
void Scheduler::trim(Sequence& sequence) {
    const auto needed = static_cast<std::size_t>(blocks_for(sequence.cached_upper()));
    if (sequence.blocks.size() <= needed) return;
    blocks_.release(std::span(sequence.blocks).subspan(needed));
    sequence.blocks.resize(needed);
}

}  // namespace deepinfer
