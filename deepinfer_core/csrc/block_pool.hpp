// The pool of cache blocks: which are free, which are in use and by how many owners, which a cache keeps. What a block
// holds, and who its owners are, is not known here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "types.hpp"

namespace deepinfer {

// Decides which blocks keep their content after their last owner let go. Without one, none does.
class BlockCache {
  public:
    virtual ~BlockCache() = default;

    // A block's last owner let go. True: its content stays, and the block counts as cached.
    virtual bool keep(Block block) = 0;

    // A cached block has an owner again.
    virtual void reuse(Block block) = 0;

    // Gives up one cached block. Called only while there is one.
    virtual Block evict() = 0;
};

// Every block is free, used (one owner or more) or cached (none, content kept).
class BlockPool {
  public:
    // `cache` is not owned, and outlives the pool.
    explicit BlockPool(std::int32_t num_blocks, BlockCache* cache = nullptr);

    std::int32_t num_blocks() const { return static_cast<std::int32_t>(owners_.size()); }
    std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }
    std::int32_t num_used() const { return used_; }
    std::int32_t num_cached() const { return cached_; }
    std::int32_t owners(Block block) const { return owners_.at(static_cast<std::size_t>(block)); }

    // Blocks that `allocate` can give.
    std::int32_t available() const { return num_free() + cached_; }

    // Appends `count` blocks to `out`, each with one owner: free ones first, then evicted ones. count <= available().
    void allocate(std::int32_t count, std::vector<Block>& out);

    // Adds an owner to a block that is used or cached.
    void retain(Block block);

    // Frees a cached block.
    void drop(Block block);

    // Takes one owner from each block, the last block first: a cache then gives up the end of a chain before its root.
    void release(std::span<const Block> blocks);

    // Throws InvariantError unless free + used + cached == total and no free block has an owner.
    void check() const;

  private:
    std::vector<std::int32_t> owners_;
    std::vector<Block> free_;  // taken from the back
    std::int32_t used_ = 0;
    std::int32_t cached_ = 0;
    BlockCache* cache_;
};

}  // namespace deepinfer
