// The pool of cache blocks.
#include "block_pool.hpp"

#include <numeric>
#include <ranges>

namespace deepinfer {

BlockPool::BlockPool(std::int32_t num_blocks, BlockCache* cache)
    : owners_(static_cast<std::size_t>(num_blocks), 0), free_(static_cast<std::size_t>(num_blocks)), cache_(cache) {
    std::iota(free_.rbegin(), free_.rend(), 0);
}

void BlockPool::allocate(std::int32_t count, std::vector<Block>& out) {
    require(0 <= count && count <= available(), "more blocks are asked for than are available");
    for (std::int32_t i = 0; i < count; ++i) {
        Block block;
        if (!free_.empty()) {
            block = free_.back();
            free_.pop_back();
        } else {
            block = cache_->evict();
            --cached_;
        }
        require(owners(block) == 0, "a block that has an owner is given out");
        owners_[static_cast<std::size_t>(block)] = 1;
        ++used_;
        out.push_back(block);
    }
}

void BlockPool::retain(Block block) {
    if (owners_.at(static_cast<std::size_t>(block))++ == 0) {
        cache_->reuse(block);
        --cached_;
        ++used_;
    }
}

void BlockPool::drop(Block block) {
    require(owners(block) == 0, "a block that has an owner is dropped");
    cache_->reuse(block);
    --cached_;
    free_.push_back(block);
}

void BlockPool::release(std::span<const Block> blocks) {
    for (const Block block : blocks | std::views::reverse) {
        require(owners(block) > 0, "a block without an owner is released");
        if (--owners_[static_cast<std::size_t>(block)] > 0) continue;
        --used_;
        if (cache_ != nullptr && cache_->keep(block)) {
            ++cached_;
        } else {
            free_.push_back(block);
        }
    }
}

void BlockPool::check() const {
    require(used_ >= 0 && cached_ >= 0, "a count of blocks is negative");
    require(num_free() + used_ + cached_ == num_blocks(), "free + used + cached blocks differ from the total");
    std::vector<bool> seen(owners_.size(), false);
    for (const Block block : free_) {
        require(owners(block) == 0, "a free block has an owner");
        require(!seen[static_cast<std::size_t>(block)], "a block is free twice");
        seen[static_cast<std::size_t>(block)] = true;
    }
    std::int32_t used = 0;
    for (const std::int32_t count : owners_) {
        require(count >= 0, "a block has a negative number of owners");
        used += count > 0 ? 1 : 0;
    }
    require(used == used_, "the count of used blocks is wrong");
}

}  // namespace deepinfer
