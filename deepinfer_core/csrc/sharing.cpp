// Blocks shared between requests with equal beginnings: finding a hit, taking it, and offering what was computed.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "scheduler.hpp"

namespace deepinfer {

// Prompts whose every row wants logits take no hit: rows that are not run have none.
Scheduler::Hit Scheduler::find_hit(Sequence& sequence) const {
    Hit hit;
    if (!cache_ || !sequence.cache_key || sequence.prompt_logits) return hit;
    const auto full = static_cast<std::size_t>(sequence.known() / limits_.block_size);
    while (hit.blocks.size() < full) {
        const Block block = cache_->find(content(sequence, hit.blocks.size()));
        if (block < 0) break;
        hit.blocks.push_back(block);
    }
    hit.spared = spared_by(static_cast<std::int32_t>(hit.blocks.size()) * limits_.block_size, sequence);
    return hit.spared > 0 ? hit : Hit{};
}

// The first row must lie far enough before everything that has to be right: the keys of rows from the hit's end on; and
// either the decoder half from its first row on, or the last known token's row.
std::int32_t Scheduler::spared_by(std::int32_t hit, const Sequence& sequence) const {
    const PrefixRules& rules = *limits_.prefix;
    const std::int32_t first = sequence.decoder_start - rules.kept_rows;
    const std::int32_t last = sequence.known() - 1 - rules.logit_rows;
    return std::min(hit - rules.key_rows, std::max(first, last));
}

void Scheduler::take(const Hit& hit, Sequence& sequence) {
    for (const Block block : hit.blocks) blocks_.retain(block);
    sequence.blocks = hit.blocks;
    sequence.offered = hit.blocks.size();
    sequence.write_start = static_cast<std::int32_t>(hit.blocks.size()) * limits_.block_size;
    sequence.prefilled = sequence.replay_start = hit.spared;
    if (!cache_ || !sequence.cache_key) return;
    queried_tokens_ += sequence.known();
    hit_tokens_ += sequence.write_start;
    replayed_tokens_ += sequence.write_start - sequence.replay_start;
}

// Every step that is planned later may read the blocks that steps planned by now fill.
void Scheduler::offer(Sequence& sequence) {
    if (!cache_ || !sequence.cache_key) return;
    const auto full = static_cast<std::size_t>(sequence.written() / limits_.block_size);
    for (; sequence.offered < full; ++sequence.offered) {
        cache_->insert(sequence.blocks[sequence.offered], content(sequence, sequence.offered));
    }
}

// Of a full block of known tokens. Fills the chain of hashes up to it.
BlockContent Scheduler::content(Sequence& sequence, std::size_t index) const {
    const auto size = static_cast<std::size_t>(limits_.block_size);
    const auto tokens = [&](std::size_t block) { return std::span(sequence.tokens).subspan(block * size, size); };
    const auto parent = [&](std::size_t block) { return block == 0 ? Hash{} : sequence.chain[block - 1]; };
    for (std::size_t block = sequence.chain.size(); block <= index; ++block) {
        sequence.chain.push_back(chain_hash(*sequence.cache_key, parent(block), tokens(block)));
    }
    return {.parent = parent(index), .hash = sequence.chain[index], .tokens = tokens(index)};
}

void Scheduler::forget(std::span<const Block> blocks) {
    for (const Block block : blocks) {
        if (block < 0 || block >= blocks_.num_blocks()) {
            throw std::invalid_argument("block " + std::to_string(block) + " must lie in 0 .. " +
                                        std::to_string(blocks_.num_blocks() - 1));
        }
        if (!cache_ || !cache_->knows(block)) continue;
        if (blocks_.owners(block) == 0) blocks_.drop(block);
        cache_->forget(block);
    }
}

void Scheduler::forget_all() {
    for (Block block = 0; block < blocks_.num_blocks(); ++block) forget(std::span(&block, 1));
}

}  // namespace deepinfer
