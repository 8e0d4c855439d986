// What comes in and what ends early: adding, refusing, aborting, counting. Planning and committing have their own
// files.
#include "scheduler.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace deepinfer {

namespace {

std::string text(std::int64_t value) {
    return std::to_string(value);
}

Limits checked(const Limits& limits) {
    const std::pair<const char*, std::int32_t> positive[] = {{"max_slots", limits.max_slots},
                                                             {"num_blocks", limits.num_blocks},
                                                             {"block_size", limits.block_size},
                                                             {"max_step_tokens", limits.max_step_tokens},
                                                             {"max_length", limits.max_length}};
    for (const auto& [name, value] : positive) {
        if (value < 1) throw std::invalid_argument(std::string(name) + " = " + text(value) + " must be at least 1");
    }
    if (limits.prefix && std::min({limits.prefix->key_rows, limits.prefix->kept_rows, limits.prefix->logit_rows,
                                   limits.prefix->history_rows}) < 0) {
        throw std::invalid_argument("the rows of prefix rules must not be negative");
    }
    if (limits.max_drafts < 0) {
        throw std::invalid_argument("max_drafts = " + text(limits.max_drafts) + " must not be negative");
    }
    return limits;
}

// Tokens that a request may come to have. Its max_new_tokens may be anything; its prompt fits.
std::int64_t longest(const Request& request, std::int64_t max_length) {
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    return prompt + std::min<std::int64_t>(request.max_new_tokens, max_length - prompt);
}

}  // namespace

Scheduler::Scheduler(const Limits& limits)
    : limits_(checked(limits)),
      cache_(limits.prefix ? std::make_unique<PrefixCache>(limits.num_blocks, limits.block_size) : nullptr),
      blocks_(limits.num_blocks, cache_.get()),
      slots_(limits.max_slots) {}

void Scheduler::add(Request request) {
    refuse_unservable(request);
    const auto limit = static_cast<std::int32_t>(longest(request, limits_.max_length));
    const RequestId id = request.id;
    auto sequence = std::make_unique<Sequence>(std::move(request), next_arrival_++, limit, limits_.max_drafts);
    waiting_.push_back(sequence.get());
    sequences_.emplace(id, std::move(sequence));
}

void Scheduler::refuse_unservable(const Request& request) const {
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    if (sequences_.contains(request.id)) {
        throw std::invalid_argument("request " + text(request.id) + " is already scheduled");
    }
    if (prompt == 0) {
        throw RequestRefused(Refusal::invalid, "the prompt has no tokens: give at least one");
    }
    if (const auto negative = std::ranges::find_if(request.prompt, [](Token token) { return token < 0; });
        negative != request.prompt.end()) {
        throw RequestRefused(Refusal::invalid, "prompt token id " + text(*negative) + " is negative");
    }
    if (request.max_new_tokens < 0 || request.min_new_tokens < 0) {
        throw RequestRefused(Refusal::invalid, "max_new_tokens = " + text(request.max_new_tokens) +
                                                   " and min_new_tokens = " + text(request.min_new_tokens) +
                                                   " must not be negative");
    }
    if (prompt + std::min<std::int64_t>(request.max_new_tokens, 1) > limits_.max_length) {
        throw RequestRefused(Refusal::prompt_too_long, "the prompt has " + text(prompt) + " tokens and the context " +
                                                           text(limits_.max_length) +
                                                           ": shorten the prompt, or raise max_length");
    }
    if (request.decoder_start < 0 || request.decoder_start >= prompt) {
        throw std::invalid_argument("decoder_start = " + text(request.decoder_start) +
                                    " must be a position of the prompt's " + text(prompt) + " tokens");
    }
    const std::int64_t total = longest(request, limits_.max_length);
    const std::int64_t needed = (total + limits_.block_size - 1) / limits_.block_size;
    if (needed > limits_.num_blocks) {
        throw RequestRefused(Refusal::too_large, "prompt and answer of up to " + text(total) + " tokens need " +
                                                     text(needed) + " cache blocks of " + text(limits_.block_size) +
                                                     " tokens and there are " + text(limits_.num_blocks) +
                                                     ": lower max_tokens, or enlarge the cache");
    }
}

void Scheduler::set_drafts(RequestId request, std::int32_t drafts) {
    if (drafts < 0 || drafts > limits_.max_drafts) {
        throw std::invalid_argument("drafts = " + text(drafts) + " must lie in 0 .. " + text(limits_.max_drafts));
    }
    if (const auto found = sequences_.find(request); found != sequences_.end()) found->second->drafts = drafts;
}

void Scheduler::finish(RequestId request) {
    const auto found = sequences_.find(request);
    if (found == sequences_.end()) return;
    Sequence& sequence = *found->second;
    if (sequence.slot >= 0) {
        erase_running(sequence);
        retire(sequence);
    } else {
        waiting_.erase(std::ranges::lower_bound(waiting_, sequence.arrival, {}, &Sequence::arrival));
        std::erase(preempted_, request);
    }
    sequences_.erase(found);
}

Stats Scheduler::stats() const {
    return {.waiting = static_cast<std::int64_t>(waiting_.size()),
            .running = static_cast<std::int64_t>(running_.size()),
            .free_blocks = blocks_.num_free(),
            .used_blocks = blocks_.num_used(),
            .cached_blocks = blocks_.num_cached(),
            .free_slots = slots_.num_free(),
            .preemptions = preemptions_,
            .queried_tokens = queried_tokens_,
            .hit_tokens = hit_tokens_,
            .replayed_tokens = replayed_tokens_,
            .evictions = cache_ ? cache_->evictions() : 0};
}

std::int32_t Scheduler::blocks_for(std::int32_t tokens) const {
    return tokens / limits_.block_size + (tokens % limits_.block_size != 0 ? 1 : 0);
}

void Scheduler::erase_running(const Sequence& sequence) {
    running_.erase(std::ranges::lower_bound(running_, sequence.arrival, {}, &Sequence::arrival));
}

void Scheduler::retire(Sequence& sequence) {
    retiring_.add({sequence.slot, std::move(sequence.blocks), sequence.last_step}, committed_, blocks_, slots_);
    sequence.slot = -1;
    sequence.blocks.clear();
    sequence.replay_start = sequence.write_start = 0;
    sequence.offered = 0;
}

}  // namespace deepinfer
