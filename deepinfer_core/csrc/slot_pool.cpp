// The pool of slots.
#include "slot_pool.hpp"

#include <numeric>

namespace deepinfer {

SlotPool::SlotPool(std::int32_t max_slots)
    : taken_(static_cast<std::size_t>(max_slots), false), free_(static_cast<std::size_t>(max_slots)) {
    std::iota(free_.rbegin(), free_.rend(), 0);
}

Slot SlotPool::allocate() {
    require(!free_.empty(), "a slot is asked for and none is free");
    const Slot slot = free_.back();
    free_.pop_back();
    taken_[static_cast<std::size_t>(slot)] = true;
    return slot;
}

void SlotPool::release(Slot slot) {
    require(taken(slot), "a free slot is released");
    taken_[static_cast<std::size_t>(slot)] = false;
    free_.push_back(slot);
}

}  // namespace deepinfer
