// Writes segments and table changes into a StepPlan.
#include "step_builder.hpp"

#include <algorithm>

namespace deepinfer {

void StepBuilder::add_slot(const Sequence& sequence, std::int32_t history_rows) {
    plan_.new_slots.push_back(sequence.slot);
    plan_.new_slot_requests.push_back(sequence.id);
    plan_.new_slot_cached.push_back(sequence.replay_start);
    for (std::int32_t p = std::max(0, sequence.replay_start - history_rows); p < sequence.replay_start; ++p) {
        plan_.past_slot.push_back(sequence.slot);
        plan_.past_position.push_back(p);
        plan_.past_token.push_back(sequence.tokens[static_cast<std::size_t>(p)]);
    }
}

void StepBuilder::add_blocks(const Sequence& sequence, std::size_t first) {
    for (std::size_t i = first; i < sequence.blocks.size(); ++i) {
        plan_.table_slot.push_back(sequence.slot);
        plan_.table_index.push_back(static_cast<std::int32_t>(i));
        plan_.table_block.push_back(sequence.blocks[i]);
    }
}

void StepBuilder::add_prefill(const Sequence& sequence, std::int32_t count) {
    const std::int32_t first = sequence.prefilled;
    const bool last = first + count == sequence.known();
    add_segment(sequence, last ? SegmentKind::prefill_last : SegmentKind::prefill, first, count);

    const auto tokens = sequence.tokens.begin() + first;
    plan_.tokens.insert(plan_.tokens.end(), tokens, tokens + count);

    const std::int32_t kept = count - plan_.kept_first.back();
    if (sequence.prompt_logits) {
        add_logit_rows(kept);
    } else if (last) {
        add_logit_rows(1);
    }
    if (last) plan_.sample_start.back() = static_cast<std::int32_t>(plan_.logit_rows.size()) - 1;
}

void StepBuilder::add_decode(const Sequence& sequence, std::int32_t drafts) {
    const std::int32_t count = 1 + drafts;
    add_segment(sequence, SegmentKind::decode, sequence.upper() - 1, count);
    plan_.drafts.back() = drafts;
    plan_.tokens.insert(plan_.tokens.end(), static_cast<std::size_t>(count), Token{-1});
    plan_.sample_start.back() = static_cast<std::int32_t>(plan_.logit_rows.size());
    add_logit_rows(count);
}

void StepBuilder::add_segment(const Sequence& sequence, SegmentKind kind, std::int32_t first, std::int32_t count) {
    const std::int32_t kept_first = std::clamp(sequence.decoder_start - first, 0, count);
    add_rows(count, kept_first);
    plan_.request.push_back(sequence.id);
    plan_.slot.push_back(sequence.slot);
    plan_.kind.push_back(static_cast<std::int32_t>(kind));
    plan_.first_position.push_back(first);
    plan_.num_rows.push_back(count);
    plan_.drafts.push_back(0);
    plan_.decoder_start.push_back(sequence.decoder_start);
    plan_.sample_start.push_back(-1);
    plan_.kept_first.push_back(kept_first);
    plan_.replay_start.push_back(sequence.replay_start);
    plan_.write_start.push_back(sequence.write_start);
    plan_.max_end = std::max(plan_.max_end, first + count);
}

void StepBuilder::add_rows(std::int32_t count, std::int32_t kept_first) {
    const auto segment = static_cast<std::int32_t>(plan_.request.size());
    const auto first_row = static_cast<std::int32_t>(plan_.segment.size());
    for (std::int32_t i = 0; i < count; ++i) {
        plan_.segment.push_back(segment);
        plan_.offset.push_back(i);
        if (i >= kept_first) plan_.kept.push_back(first_row + i);
    }
}

void StepBuilder::add_logit_rows(std::int32_t count) {
    const auto end = static_cast<std::int32_t>(plan_.kept.size());
    for (std::int32_t i = end - count; i < end; ++i) plan_.logit_rows.push_back(i);
}

}  // namespace deepinfer
