// Writes the buffer field by field, in the order that step_layout.hpp names.
#include "step_layout.hpp"

#include <algorithm>
#include <stdexcept>

#include "step_plan.hpp"

namespace deepinfer {
namespace {

class Writer {
  public:
    Writer(const PlanArrays& plan, std::int32_t history_rows) : plan_(plan), history_rows_(history_rows) {
        for (const std::int32_t kind : plan.kind) decode_.push_back(kind == static_cast<int>(SegmentKind::decode));
    }

    StepLayout write() {
        segment_fields();
        for (const Ints rows : {plan_.segment, plan_.offset, plan_.tokens, plan_.kept, plan_.logit_rows}) copy(rows);
        sampled_fields();
        for (const Ints scored : {plan_.prompt_logit, plan_.prompt_target}) copy(scored);
        length_fields();
        history_fields();
        past_fields();
        for (const Ints table : {plan_.new_slots, plan_.table_slot, plan_.table_index, plan_.table_block}) copy(table);
        return std::move(layout_);
    }

  private:
    void segment_fields() {
        append(plan_.slot);
        append(decode_);
        append(plan_.first_position);
        append_starts([](std::int32_t rows, std::int32_t) { return rows; });
        for (const std::int32_t rows : plan_.num_rows) layout_.buffer.push_back(rows - 1);
        append_starts([](std::int32_t rows, std::int32_t kept_first) { return rows - kept_first; });
        append(plan_.kept_first);
        for (std::size_t s = 0; s < segments(); ++s)
            layout_.buffer.push_back(std::max(plan_.decoder_start[s], plan_.replay_start[s]));
        append(plan_.replay_start);
        append(plan_.write_start);
    }

    void sampled_fields() {
        field([&](std::size_t s) { return plan_.sample_start[s]; }, [&](std::size_t s) { return samples(s); });
        field([&](std::size_t s) { return plan_.slot[s]; }, [&](std::size_t s) { return samples(s); });
    }

    void length_fields() {
        const auto prefill = [&](std::size_t s) { return !decode_[s]; };
        const auto decode = [&](std::size_t s) { return decode_[s] != 0; };
        field([&](std::size_t s) { return plan_.slot[s]; }, prefill);
        field([&](std::size_t s) { return plan_.first_position[s] + plan_.num_rows[s]; }, prefill);
        field([&](std::size_t s) { return plan_.slot[s]; }, decode);
        std::vector<std::int32_t> sample(segments());
        std::int32_t count = 0;
        for (std::size_t s = 0; s < segments(); ++s) sample[s] = samples(s) ? count++ : count - 1;
        field([&](std::size_t s) { return sample[s]; }, decode);
    }

    void history_fields() {
        std::vector<std::int32_t> slot, index, token;
        std::int32_t row = 0;
        for (std::size_t s = 0; s < segments(); row += plan_.num_rows[s++]) {
            if (decode_[s]) continue;
            for (std::int32_t i = std::max(0, plan_.num_rows[s] - history_rows_); i < plan_.num_rows[s]; ++i) {
                slot.push_back(plan_.slot[s]);
                index.push_back((plan_.first_position[s] + i) % history_rows_);
                token.push_back(plan_.tokens[static_cast<std::size_t>(row + i)]);
            }
        }
        for (const Ints values : {Ints(slot), Ints(index), Ints(token)}) copy(values);
    }

    void past_fields() {
        std::vector<std::int32_t> slot, index, token;
        const std::size_t count = plan_.past_slot.size();
        for (std::size_t i = 0; i < count; ++i) {
            // A ring keeps the last of them only.
            const std::size_t later = i + static_cast<std::size_t>(history_rows_);
            if (later < count && plan_.past_slot[later] == plan_.past_slot[i]) continue;
            slot.push_back(plan_.past_slot[i]);
            index.push_back(plan_.past_position[i] % history_rows_);
            token.push_back(plan_.past_token[i]);
        }
        for (const Ints values : {Ints(slot), Ints(index), Ints(token)}) copy(values);
    }

    std::size_t segments() const { return plan_.slot.size(); }
    bool samples(std::size_t segment) const { return plan_.sample_start[segment] >= 0; }

    void append(Ints values) { layout_.buffer.insert(layout_.buffer.end(), values.begin(), values.end()); }

    // Where each segment's run begins when runs of these lengths are laid end to end.
    template <class Length>
    void append_starts(const Length& length) {
        std::int32_t start = 0;
        for (std::size_t s = 0; s < segments(); ++s) {
            layout_.buffer.push_back(start);
            start += length(plan_.num_rows[s], plan_.kept_first[s]);
        }
    }

    // A field of the step.
    void copy(Ints values) {
        append(values);
        layout_.sizes.push_back(static_cast<std::int64_t>(values.size()));
    }

    // A field with one entry for each segment that `chosen` takes.
    template <class Value, class Chosen>
    void field(const Value& value, const Chosen& chosen) {
        const std::size_t before = layout_.buffer.size();
        for (std::size_t s = 0; s < segments(); ++s)
            if (chosen(s)) layout_.buffer.push_back(value(s));
        layout_.sizes.push_back(static_cast<std::int64_t>(layout_.buffer.size() - before));
    }

    const PlanArrays& plan_;
    std::int32_t history_rows_;
    std::vector<std::int32_t> decode_;
    StepLayout layout_;
};

void check(const PlanArrays& plan, std::int32_t history_rows) {
    const std::size_t segments = plan.slot.size(), rows = plan.tokens.size();
    for (const Ints field : {plan.kind, plan.first_position, plan.num_rows, plan.decoder_start, plan.sample_start,
                             plan.kept_first, plan.replay_start, plan.write_start})
        if (field.size() != segments) throw std::invalid_argument("a plan's segment fields have one entry a segment");
    std::size_t total = 0;
    for (const std::int32_t count : plan.num_rows) {
        if (count < 0) throw std::invalid_argument("an entry of a plan's num_rows is negative");
        total += static_cast<std::size_t>(count);
    }
    if (plan.segment.size() != rows || plan.offset.size() != rows || total != rows)
        throw std::invalid_argument("a plan's row fields have one entry a row, num_rows of each segment");
    if (plan.past_position.size() != plan.past_slot.size() || plan.past_token.size() != plan.past_slot.size())
        throw std::invalid_argument("a plan's past tokens have a slot and a position each");
    if (history_rows < 1) throw std::invalid_argument("the token ring has at least one row");
}

}  // namespace

StepLayout lay_out(const PlanArrays& plan, std::int32_t history_rows) {
    check(plan, history_rows);
    return Writer(plan, history_rows).write();
}

}  // namespace deepinfer
