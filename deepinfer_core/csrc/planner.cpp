// What a step holds: decodes first, then prefills under way, then newcomers, each in order of arrival.
#include <algorithm>
#include <utility>

#include "scheduler.hpp"

namespace deepinfer {

std::unique_ptr<StepPlan> Scheduler::plan() {
    auto plan = std::make_unique<StepPlan>();
    StepBuilder builder(*plan);
    InFlight step{.step = next_step_, .samples = {}};

    plan_decodes(builder, step);
    plan_prefills(builder, step);
    admit(builder, step);

    if (builder.empty()) return nullptr;
    // Only now, so that no step reads blocks that it writes itself.
    for (Sequence* sequence : running_) offer(*sequence);
    plan->step = next_step_++;
    plan->preempted = std::exchange(preempted_, {});
    in_flight_.push_back(std::move(step));
    return plan;
}

void Scheduler::plan_decodes(StepBuilder& builder, InFlight& step) {
    const auto due = [](const Sequence* sequence) { return sequence->decoding && sequence->room() > 0; };
    std::int64_t others = std::ranges::count_if(running_, due);
    // Preemption takes from the end of `running_`: what it removes was not reached yet.
    for (std::size_t i = 0; i < running_.size() && budget(builder) > 0; ++i) {
        if (!due(running_[i])) continue;
        --others;  // the decodes that still want a row of their own
        const std::int64_t draft_rows = std::max<std::int64_t>(budget(builder) - 1 - others, 0);
        plan_decode(*running_[i], draft_rows, builder, step);
    }
}

void Scheduler::plan_prefills(StepBuilder& builder, InFlight& step) {
    for (Sequence* sequence : running_) {
        if (budget(builder) == 0) return;
        if (!sequence->decoding) plan_chunk(*sequence, builder, step);
    }
}

// A decode that was left out leaves no block available, so no newcomer gets what it is waiting for.
void Scheduler::admit(StepBuilder& builder, InFlight& step) {
    while (budget(builder) > 0 && !waiting_.empty() && slots_.num_free() > 0) {
        Sequence& sequence = *waiting_.front();
        if (still_refused(sequence)) return;
        const Hit hit = find_hit(sequence);
        const std::int64_t owned = std::ranges::count_if(hit.blocks, [&](Block b) { return blocks_.owners(b) > 0; });
        if (!can_admit(sequence, owned)) {
            refused_ = {sequence.id, hit.blocks.size(), owned};
            return;
        }
        refused_.reset();
        waiting_.pop_front();
        running_.push_back(&sequence);
        sequence.slot = slots_.allocate();
        sequence.stay = next_stay_++;
        take(hit, sequence);
        builder.add_slot(sequence, limits_.prefix ? limits_.prefix->history_rows : 0);
        builder.add_blocks(sequence, 0);
        grow(sequence, sequence.known(), builder);
        plan_chunk(sequence, builder, step);
    }
}

void Scheduler::plan_decode(Sequence& sequence, std::int64_t draft_rows, StepBuilder& builder, InFlight& step) {
    const auto held = static_cast<std::int32_t>(sequence.blocks.size());
    const std::int32_t missing = blocks_for(sequence.upper()) - held;
    if (!make_room(sequence, missing)) return;

    // A draft is worth a free block, never a preemption.
    const std::int64_t reachable = std::int64_t{held + blocks_.available()} * limits_.block_size;
    const auto drafts = static_cast<std::int32_t>(
        std::min<std::int64_t>({sequence.drafts, sequence.room() - 1, draft_rows, reachable - sequence.upper()}));
    grow(sequence, sequence.upper() + drafts, builder);
    builder.add_decode(sequence, drafts);
    expect_sample(sequence, 1 + drafts, step);
}

void Scheduler::plan_chunk(Sequence& sequence, StepBuilder& builder, InFlight& step) {
    const std::int32_t count = std::min(sequence.known() - sequence.prefilled, budget(builder));
    builder.add_prefill(sequence, count);
    sequence.prefilled += count;
    sequence.last_step = step.step;
    if (sequence.prefilled == sequence.known()) {
        sequence.decoding = true;
        expect_sample(sequence, 1, step);
    }
}

// Preempts later arrivals until `missing` blocks are available. False when the sequence must go without a row in this
// step: the blocks come back with a commit that is due, or it is the latest itself and was preempted.
bool Scheduler::make_room(const Sequence& sequence, std::int32_t missing) {
    while (blocks_.available() < missing) {
        if (blocks_.available() + retiring_.num_blocks() >= missing) return false;
        const bool itself = running_.back() == &sequence;
        preempt_latest();
        if (itself) return false;
    }
    return true;
}

// One block for each running request stays free, so that a newcomer does not preempt, or get preempted, at once. Alone,
// a request may take all. Blocks of its hit that nobody owns count among the available ones: only `owned` ones are
// saved.
bool Scheduler::can_admit(const Sequence& sequence, std::int64_t owned) const {
    const auto spare = static_cast<std::int64_t>(running_.size());
    return blocks_for(sequence.known()) - owned + spare <= blocks_.available();
}

// Spares a request that waits for room the walk along its hit in every plan. Until somebody is admitted, or its hit
// gets longer, no more blocks of the hit have owners than had.
bool Scheduler::still_refused(Sequence& sequence) const {
    if (!refused_ || refused_->request != sequence.id || refused_->found == 0) return false;
    const auto full = static_cast<std::size_t>(sequence.known() / limits_.block_size);
    if (refused_->found < full && cache_->find(content(sequence, refused_->found)) >= 0) return false;
    return !can_admit(sequence, refused_->owned);
}

void Scheduler::grow(Sequence& sequence, std::int32_t tokens, StepBuilder& builder) {
    const std::size_t held = sequence.blocks.size();
    const std::int32_t missing = blocks_for(tokens) - static_cast<std::int32_t>(held);
    if (missing <= 0) return;
    blocks_.allocate(missing, sequence.blocks);
    builder.add_blocks(sequence, held);
}

void Scheduler::preempt_latest() {
    Sequence& sequence = *running_.back();
    running_.pop_back();
    retire(sequence);
    sequence.prefilled = 0;
    sequence.decoding = false;
    sequence.in_flight = 0;
    sequence.stay = -1;
    waiting_.push_front(&sequence);
    preempted_.push_back(sequence.id);
    ++preemptions_;
}

void Scheduler::expect_sample(Sequence& sequence, std::int32_t reserved, InFlight& step) {
    sequence.in_flight += reserved;
    sequence.last_step = step.step;
    step.samples.push_back({sequence.id, sequence.stay, reserved});
}

}  // namespace deepinfer
