// Writes segments and table changes into a StepPlan. Which segments a step has is decided in planner.cpp.
#pragma once

#include "sequence.hpp"
#include "step_plan.hpp"

namespace deepinfer {

class StepBuilder {
  public:
    explicit StepBuilder(StepPlan& plan) : plan_(plan) {}

    // The sequence's slot was given to it in this step. Up to `history_rows` of the tokens that a hit spares are
    // repeated.
    void add_slot(const Sequence& sequence, std::int32_t history_rows);

    // The sequence's blocks from index `first` on were given to it in this step.
    void add_blocks(const Sequence& sequence, std::size_t first);

    // `count` known tokens from position `sequence.prefilled` on.
    void add_prefill(const Sequence& sequence, std::int32_t count);

    // The newest token and `drafts` drafts, at positions of at most `sequence.upper() - 1` and on.
    void add_decode(const Sequence& sequence, std::int32_t drafts);

    bool empty() const { return plan_.request.empty(); }
    std::int32_t num_rows() const { return static_cast<std::int32_t>(plan_.tokens.size()); }

  private:
    void add_segment(const Sequence& sequence, SegmentKind kind, std::int32_t first, std::int32_t count);
    void add_rows(std::int32_t count, std::int32_t kept_first);
    void add_logit_rows(std::int32_t count);

    StepPlan& plan_;
};

}  // namespace deepinfer
