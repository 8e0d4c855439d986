// One step as flat arrays; deepinfer_core/interfaces/scheduler.py (StepPlan) documents each.
#pragma once

#include <cstdint>
#include <vector>

#include "types.hpp"

namespace deepinfer {

enum class SegmentKind : std::int32_t { prefill = 0, prefill_last = 1, decode = 2 };

struct StepPlan {
    Step step = -1;

    // One entry a segment
    std::vector<RequestId> request;
    std::vector<Slot> slot;
    std::vector<std::int32_t> kind;
    std::vector<std::int32_t> first_position;
    std::vector<std::int32_t> num_rows;
    std::vector<std::int32_t> drafts;
    std::vector<std::int32_t> decoder_start;
    std::vector<std::int32_t> sample_start;
    std::vector<std::int32_t> kept_first;
    std::vector<std::int32_t> replay_start;
    std::vector<std::int32_t> write_start;

    // One entry a row
    std::vector<Token> tokens;
    std::vector<std::int32_t> segment;
    std::vector<std::int32_t> offset;

    // One entry a kept row, one a logit row
    std::vector<std::int32_t> kept;
    std::vector<std::int32_t> logit_rows;

    // Changes of the device's tables
    std::vector<Slot> new_slots;
    std::vector<RequestId> new_slot_requests;
    std::vector<std::int32_t> new_slot_cached;
    std::vector<Slot> past_slot;
    std::vector<std::int32_t> past_position;
    std::vector<Token> past_token;
    std::vector<Slot> table_slot;
    std::vector<std::int32_t> table_index;
    std::vector<Block> table_block;

    std::int32_t max_end = 0;
    std::vector<RequestId> preempted;
};

}  // namespace deepinfer
