// The pools by themselves: states, owners, order, the cache's seam, what is refused.
#include <vector>

#include "block_pool.hpp"
#include "retiring.hpp"
#include "slot_pool.hpp"
#include "testing.hpp"

using namespace deepinfer;

namespace {

// Keeps even blocks and gives up the one that it kept first.
class EvenBlocks : public BlockCache {
  public:
    bool keep(Block block) override {
        if (block % 2 != 0) return false;
        kept.push_back(block);
        return true;
    }

    void reuse(Block block) override { std::erase(kept, block); }

    Block evict() override {
        const Block block = kept.front();
        kept.erase(kept.begin());
        return block;
    }

    std::vector<Block> kept;
};

}  // namespace

TEST(blocks_are_free_or_used) {
    BlockPool pool(4);
    std::vector<Block> mine;
    pool.allocate(3, mine);
    CHECK(mine == (std::vector<Block>{0, 1, 2}));
    CHECK(pool.num_free() == 1 && pool.num_used() == 3 && pool.num_cached() == 0);
    pool.release(mine);
    CHECK(pool.num_free() == 4 && pool.num_used() == 0);
    pool.check();
}

TEST(blocks_are_released_from_the_last_to_the_first) {
    BlockPool pool(3);
    std::vector<Block> mine;
    pool.allocate(3, mine);
    pool.release(mine);
    std::vector<Block> again;
    pool.allocate(3, again);
    CHECK(again == mine);
}

TEST(a_block_with_two_owners_is_used_until_both_let_go) {
    BlockPool pool(2);
    std::vector<Block> mine;
    pool.allocate(1, mine);
    pool.retain(mine[0]);
    pool.release(mine);
    CHECK(pool.num_used() == 1 && pool.owners(mine[0]) == 1);
    pool.release(mine);
    CHECK(pool.num_used() == 0);
    pool.check();
}

TEST(a_cache_keeps_blocks_until_they_are_needed) {
    EvenBlocks cache;
    BlockPool pool(4, &cache);
    std::vector<Block> mine;
    pool.allocate(4, mine);
    pool.release(mine);
    CHECK(cache.kept == (std::vector<Block>{2, 0}));
    CHECK(pool.num_free() == 2 && pool.num_cached() == 2 && pool.available() == 4);
    pool.check();

    std::vector<Block> next;
    pool.allocate(3, next);
    CHECK(next.back() == 2);
    CHECK(pool.num_free() == 0 && pool.num_cached() == 1 && pool.num_used() == 3);
    pool.check();
}

TEST(a_cached_block_can_be_used_again) {
    EvenBlocks cache;
    BlockPool pool(1, &cache);
    std::vector<Block> mine;
    pool.allocate(1, mine);
    pool.release(mine);
    pool.retain(mine[0]);
    CHECK(cache.kept.empty());
    CHECK(pool.num_used() == 1 && pool.num_cached() == 0);
    pool.check();
    pool.release(mine);
    pool.drop(mine[0]);
    CHECK(pool.num_free() == 1 && pool.num_cached() == 0);
    CHECK_THROWS(InvariantError, (pool.allocate(1, mine), pool.drop(mine[0])));
}

TEST(misuse_of_blocks_is_an_error) {
    BlockPool pool(2);
    std::vector<Block> mine;
    CHECK_THROWS(InvariantError, pool.allocate(3, mine));
    pool.allocate(1, mine);
    pool.release(mine);
    CHECK_THROWS(InvariantError, pool.release(mine));
    CHECK_THROWS(std::out_of_range, pool.retain(2));
}

TEST(slots_are_taken_and_returned) {
    SlotPool pool(2);
    const Slot first = pool.allocate();
    const Slot second = pool.allocate();
    CHECK(first == 0 && second == 1 && pool.num_free() == 0);
    CHECK_THROWS(InvariantError, pool.allocate());
    pool.release(first);
    CHECK(!pool.taken(first) && pool.taken(second));
    CHECK_THROWS(InvariantError, pool.release(first));
    CHECK(pool.allocate() == first);
}

TEST(a_holding_returns_with_the_commit_of_its_last_step) {
    BlockPool blocks(4);
    SlotPool slots(2);
    Retiring retiring;
    std::vector<Block> mine;
    blocks.allocate(3, mine);
    retiring.add({slots.allocate(), mine, 5}, 3, blocks, slots);
    CHECK(retiring.num_blocks() == 3 && blocks.num_used() == 3 && slots.num_free() == 1);
    retiring.release(4, blocks, slots);
    CHECK(retiring.num_blocks() == 3);
    retiring.release(5, blocks, slots);
    CHECK(retiring.num_blocks() == 0 && blocks.num_used() == 0 && slots.num_free() == 2);
}

TEST(a_holding_that_no_step_uses_returns_at_once) {
    BlockPool blocks(1);
    SlotPool slots(1);
    Retiring retiring;
    std::vector<Block> mine;
    blocks.allocate(1, mine);
    retiring.add({slots.allocate(), mine, 3}, 3, blocks, slots);
    CHECK(retiring.holdings().empty() && blocks.num_free() == 1 && slots.num_free() == 1);
}
