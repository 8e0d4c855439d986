// The prefix cache by itself: what is found, what is told apart, which block goes first.
#include <vector>

#include "prefix_cache.hpp"
#include "testing.hpp"

using namespace deepinfer;

namespace {

constexpr Hash key{1, 2};
const std::vector<Token> some{1, 2}, other{1, 3};

BlockContent first_block(const std::vector<Token>& tokens) {
    return {.parent = {}, .hash = chain_hash(key, {}, tokens), .tokens = tokens};
}

}  // namespace

TEST(content_is_found_by_its_tokens_and_what_came_before) {
    PrefixCache cache(4, 2);
    const BlockContent root = first_block(some);
    cache.insert(3, root);
    CHECK(cache.find(root) == 3);
    CHECK(cache.find(first_block(other)) == -1);
    const BlockContent child{.parent = root.hash, .hash = chain_hash(key, root.hash, some), .tokens = some};
    CHECK(cache.find(child) == -1);
    CHECK(chain_hash({2, 1}, {}, some) != root.hash);
}

TEST(a_hash_that_collides_is_no_hit) {
    PrefixCache cache(4, 2);
    const BlockContent mine = first_block(some);
    cache.insert(0, mine);
    CHECK(cache.find({.parent = mine.parent, .hash = mine.hash, .tokens = other}) == -1);
    CHECK(cache.find({.parent = {5, 6}, .hash = mine.hash, .tokens = some}) == -1);
}

TEST(the_first_block_of_a_content_keeps_its_name) {
    PrefixCache cache(4, 2);
    cache.insert(1, first_block(some));
    cache.insert(2, first_block(some));
    CHECK(cache.find(first_block(some)) == 1 && cache.knows(1) && !cache.knows(2));
    CHECK(!cache.keep(2));
    cache.check(0);
}

TEST(blocks_leave_in_the_order_in_which_they_came_into_line) {
    PrefixCache cache(4, 1);
    std::vector<std::vector<Token>> tokens{{0}, {1}, {2}};
    for (Block block = 0; block < 3; ++block) {
        cache.insert(block, first_block(tokens[static_cast<std::size_t>(block)]));
        CHECK(cache.keep(block));
    }
    cache.reuse(0);
    CHECK(cache.keep(0));
    cache.check(3);
    CHECK(cache.evict() == 1 && cache.evict() == 2 && cache.evict() == 0);
    CHECK(cache.evictions() == 3 && cache.find(first_block(tokens[0])) == -1);
    cache.check(0);
    CHECK_THROWS(InvariantError, cache.evict());
}

TEST(misuse_of_the_cache_is_an_error) {
    PrefixCache cache(2, 2);
    cache.insert(0, first_block(some));
    CHECK_THROWS(InvariantError, cache.insert(0, first_block(other)));
    CHECK_THROWS(InvariantError, cache.insert(1, {.parent = {}, .hash = {}, .tokens = std::span(some).first(1)}));
    CHECK_THROWS(InvariantError, cache.reuse(0));
    CHECK(cache.keep(0));
    CHECK_THROWS(InvariantError, cache.check(0));
    CHECK_THROWS(InvariantError, cache.check(2));
}
