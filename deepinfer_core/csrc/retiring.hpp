// Slots and blocks whose request ended or was preempted while steps in flight still use them.
#pragma once

#include <vector>

#include "block_pool.hpp"
#include "slot_pool.hpp"
#include "types.hpp"

namespace deepinfer {

// What a request held, until `last_step` is committed.
struct Holding {
    Slot slot;
    std::vector<Block> blocks;
    Step last_step;
};

class Retiring {
  public:
    // Returns the holding to the pools: now when `last_step <= committed`, else with the commit of that step.
    void add(Holding holding, Step committed, BlockPool& blocks, SlotPool& slots);

    // `committed` is the newest committed step.
    void release(Step committed, BlockPool& blocks, SlotPool& slots);

    // Blocks that coming commits give back.
    std::int32_t num_blocks() const { return num_blocks_; }
    const std::vector<Holding>& holdings() const { return holdings_; }

  private:
    std::vector<Holding> holdings_;
    std::int32_t num_blocks_ = 0;
};

}  // namespace deepinfer
