// The scheduler's invariants, checked by tests after every step and by the engine when it is idle.
#include <string>
#include <unordered_map>
#include <vector>

#include "scheduler.hpp"

namespace deepinfer {

void Scheduler::check() const try {
    blocks_.check();
    if (cache_) cache_->check(blocks_.num_cached());
    check_queues();
    check_sequences();
    check_ownership();
} catch (const InvariantError& broken) {
    throw InvariantError(std::string(broken.what()) + "; " + state());
}

std::string Scheduler::state() const {
    const auto count = [](std::int64_t value, const char* what) { return std::to_string(value) + what; };
    return "at step " + std::to_string(next_step_) + ", " + count(committed_ + 1, " committed: ") +
           count(std::ssize(running_), " running, ") + count(std::ssize(waiting_), " waiting; of ") +
           count(blocks_.num_blocks(), " blocks ") + count(blocks_.num_free(), " free, ") +
           count(blocks_.num_used(), " used, ") + count(blocks_.num_cached(), " cached, ") +
           count(retiring_.num_blocks(), " to come back; of ") + count(slots_.num_slots(), " slots ") +
           count(slots_.num_free(), " free");
}

void Scheduler::check_queues() const {
    require(sequences_.size() == running_.size() + waiting_.size(),
            "a request is neither running nor waiting, or both");
    std::int64_t newest = -1;
    for (const Sequence* sequence : running_) {
        require(sequence->arrival > newest, "running requests are not in order of arrival");
        newest = sequence->arrival;
    }
    for (const Sequence* sequence : waiting_) {
        require(sequence->arrival > newest, "waiting requests are not in order of arrival, after the running ones");
        newest = sequence->arrival;
        require(sequence->slot < 0 && sequence->blocks.empty(), "a waiting request holds a slot or blocks");
        require(sequence->in_flight == 0 && sequence->prefilled == 0, "a waiting request has tokens in flight");
    }
    Step previous = committed_;
    for (const InFlight& step : in_flight_) {
        require(step.step == ++previous, "steps in flight are not consecutive");
    }
    require(previous + 1 == next_step_, "a step was neither committed nor kept in flight");
}

void Scheduler::check_sequences() const {
    std::unordered_map<RequestId, std::int32_t> expected;
    for (const InFlight& step : in_flight_) {
        for (const Sample& sample : step.samples) {
            const auto found = sequences_.find(sample.request);
            if (found != sequences_.end() && found->second->stay == sample.stay) {
                expected[sample.request] += sample.reserved;
            }
        }
    }
    for (const Sequence* sequence : running_) {
        require(sequence->in_flight == expected[sequence->id], "tokens in flight differ from what the steps reserved");
        require(sequence->known() <= sequence->limit, "a request went beyond its limit");
        require(sequence->prefilled <= sequence->known(), "more was prefilled than is known");
        require(sequence->replay_start < sequence->known(), "a hit leaves no row to compute");
        require(sequence->replay_start <= sequence->write_start && sequence->replay_start <= sequence->prefilled,
                "a replay begins after the end of its hit, or after its rows");
        require(sequence->write_start % limits_.block_size == 0, "a hit ends within a block");
        const auto held = static_cast<std::int32_t>(sequence->blocks.size());
        require(held == blocks_for(sequence->cached_upper()), "a request holds more or fewer blocks than it may fill");
        require(sequence->last_step < next_step_, "a request has rows in a step that was never planned");
    }
}

void Scheduler::check_ownership() const {
    std::vector<std::int32_t> owners(static_cast<std::size_t>(blocks_.num_blocks()), 0);
    std::vector<std::int32_t> slot_owners(static_cast<std::size_t>(slots_.num_slots()), 0);
    const auto count = [&](Slot slot, const std::vector<Block>& blocks) {
        ++slot_owners.at(static_cast<std::size_t>(slot));
        for (const Block block : blocks) ++owners.at(static_cast<std::size_t>(block));
    };
    for (const Sequence* sequence : running_) count(sequence->slot, sequence->blocks);
    std::int32_t retiring = 0;
    for (const Holding& holding : retiring_.holdings()) {
        count(holding.slot, holding.blocks);
        retiring += static_cast<std::int32_t>(holding.blocks.size());
        require(committed_ < holding.last_step && holding.last_step < next_step_, "a holding was not given back");
    }
    require(retiring == retiring_.num_blocks(), "the count of retiring blocks is wrong");
    for (Block block = 0; block < blocks_.num_blocks(); ++block) {
        require(owners[static_cast<std::size_t>(block)] == blocks_.owners(block),
                "a block's owners differ from its count");
    }
    std::int32_t free_slots = 0;
    for (Slot slot = 0; slot < slots_.num_slots(); ++slot) {
        const std::int32_t held = slot_owners[static_cast<std::size_t>(slot)];
        require(held == (slots_.taken(slot) ? 1 : 0), "a slot is taken and not held, or held twice");
        free_slots += held == 0 ? 1 : 0;
    }
    require(free_slots == slots_.num_free(), "the count of free slots is wrong");
}

}  // namespace deepinfer
