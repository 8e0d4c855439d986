// Slots and blocks whose request ended or was preempted while steps in flight still use them.
#include "retiring.hpp"

#include <utility>

namespace deepinfer {

void Retiring::add(Holding holding, Step committed, BlockPool& blocks, SlotPool& slots) {
    num_blocks_ += static_cast<std::int32_t>(holding.blocks.size());
    holdings_.push_back(std::move(holding));
    release(committed, blocks, slots);
}

void Retiring::release(Step committed, BlockPool& blocks, SlotPool& slots) {
    std::erase_if(holdings_, [&](const Holding& holding) {
        if (holding.last_step > committed) return false;
        num_blocks_ -= static_cast<std::int32_t>(holding.blocks.size());
        blocks.release(holding.blocks);
        slots.release(holding.slot);
        return true;
    });
}

}  // namespace deepinfer
