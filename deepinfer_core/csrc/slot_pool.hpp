// The pool of slots: which of the device's per-slot table rows no request has.
#pragma once

#include <vector>

#include "types.hpp"

namespace deepinfer {

class SlotPool {
  public:
    explicit SlotPool(std::int32_t max_slots);

    std::int32_t num_slots() const { return static_cast<std::int32_t>(taken_.size()); }
    std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }
    bool taken(Slot slot) const { return taken_.at(static_cast<std::size_t>(slot)); }

    // A free slot; there must be one.
    Slot allocate();

    void release(Slot slot);

  private:
    std::vector<bool> taken_;
    std::vector<Slot> free_;  // taken from the back
};

}  // namespace deepinfer
