// Which blocks hold which tokens after which prefix, and which of the unused ones is given up next. The blocks' counts
// are BlockPool's.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "block_pool.hpp"
#include "hash.hpp"
#include "types.hpp"

namespace deepinfer {

// One full block of a sequence. `hash` covers `tokens` and, through `parent`, every token before them; both are keyed
// by what a request may share with, so that nothing is found across keys.
struct BlockContent {
    Hash parent;
    Hash hash;
    std::span<const Token> tokens;
};

// The hash of a block from the hash of the block before it (zero for the first) and its tokens.
Hash chain_hash(const Hash& key, const Hash& parent, std::span<const Token> tokens);

class PrefixCache final : public BlockCache {
  public:
    PrefixCache(std::int32_t num_blocks, std::int32_t block_size);

    // The block that holds this content, or -1. Tokens are compared: a hash alone is no proof.
    Block find(const BlockContent& content) const;

    // From now on `block` is found by its content. Nothing happens when another block already is.
    void insert(Block block, const BlockContent& content);

    // The block is not found any more. It must not be in line.
    void forget(Block block);

    bool knows(Block block) const { return entries_.at(static_cast<std::size_t>(block)).known; }
    std::int64_t evictions() const { return evictions_; }

    // Blocks without an owner leave in the order in which they lost their last one.
    bool keep(Block block) override;
    void reuse(Block block) override;
    Block evict() override;

    // Throws InvariantError unless every name leads to its block and `cached` blocks are in line.
    void check(std::int32_t cached) const;

  private:
    struct Entry {
        bool known = false;
        Hash parent;
        Hash hash;
    };

    std::span<Token> tokens(Block block);
    std::span<const Token> tokens(Block block) const;
    void unlink(Block block);

    std::int32_t block_size_;
    std::vector<Entry> entries_;
    std::vector<Token> tokens_;  // [blocks, block_size]
    std::unordered_map<Hash, Block> by_hash_;
    // The line of blocks without an owner, a ring through one place beyond the blocks: next_[end] is the oldest.
    std::vector<Block> next_;
    std::vector<Block> previous_;
    std::int64_t evictions_ = 0;
};

}  // namespace deepinfer
