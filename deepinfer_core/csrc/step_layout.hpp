// Lays a step's plan out as the device wants it: one buffer of integers, first the fields of each segment, then those
// of the step. Their names, order and meaning are those of SegmentFields and StepFields in
// deepinfer_core/engine/step.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

using Ints = std::span<const std::int32_t>;

// The arrays of a StepPlan that the device needs, and the logit rows that score prompt tokens.
struct PlanArrays {
    // one entry a segment
    Ints slot, kind, first_position, num_rows, decoder_start, sample_start, kept_first, replay_start, write_start;
    Ints tokens, segment, offset;  // one entry a row
    Ints kept, logit_rows;
    Ints new_slots, past_slot, past_position, past_token;
    Ints table_slot, table_index, table_block;
    Ints prompt_logit, prompt_target;
};

struct StepLayout {
    std::vector<std::int32_t> buffer;
    std::vector<std::int64_t> sizes;  // of the step's fields; a segment field has one entry a segment
};

// `history_rows`: rows of the device's token ring, which keeps the last of each prefill chunk's tokens, and those
// before a replay.
StepLayout lay_out(const PlanArrays& plan, std::int32_t history_rows);

}  // namespace deepinfer
