// Random requests, drafts, aborts, prefix hits and depths on small pools, for the sanitizers: after every move the
// invariants hold, no plan hands out what a step in flight uses, and every answer is the one that its prompt alone
// determines.
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "scheduler.hpp"
#include "testing.hpp"

using namespace deepinfer;

namespace {

using Tokens = std::vector<Token>;

constexpr Token vocabulary = 11;

Token next_token(const Tokens& prefix, std::size_t length) {
    std::uint32_t hash = 2166136261U;
    for (std::size_t i = 0; i < length; ++i) hash = (hash ^ static_cast<std::uint32_t>(prefix[i] + 1)) * 16777619U;
    return static_cast<Token>((hash >> 8) % vocabulary);
}

struct Expected {
    Tokens prompt;
    std::size_t length;  // tokens of prompt and answer
    Tokens got;
    bool ended = false;
};

struct Running {
    std::unique_ptr<StepPlan> plan;
    Tokens tokens;
    std::vector<std::int32_t> counts;
};

class World {
  public:
    World(const Limits& limits, std::uint32_t seed) : limits_(limits), scheduler_(limits), random_(seed) {}

    void run(std::size_t requests, std::size_t depth) {
        while (added_ < requests || step_or_commit(depth)) {
            if (added_ < requests && chance(3)) add();
            if (chance(40) && added_ > 0) abort();
            if (chance(60)) forget();
            step_or_commit(depth);
        }
        const Stats stats = scheduler_.stats();
        CHECK(stats.free_blocks + stats.cached_blocks == limits_.num_blocks && stats.free_slots == limits_.max_slots);
        for (const auto& [id, expected] : expected_) CHECK(expected.ended);
    }

    std::int64_t hit_tokens() const { return scheduler_.stats().hit_tokens; }
    std::int64_t preemptions() const { return scheduler_.stats().preemptions; }

  private:
    bool chance(std::uint32_t one_in) { return random_() % one_in == 0; }
    std::size_t below(std::size_t end) { return random_() % end; }

    void add() {
        Tokens prompt(1 + below(14));
        for (Token& token : prompt) token = static_cast<Token>(chance(9) ? below(vocabulary) : 1);
        const std::size_t answer = below(16);
        const auto id = static_cast<RequestId>(added_++);
        expected_[id] = {.prompt = prompt, .length = prompt.size() + answer, .got = {}};
        scheduler_.add({.id = id,
                        .prompt = prompt,
                        .max_new_tokens = static_cast<std::int64_t>(answer),
                        .min_new_tokens = 0,
                        .stop_tokens = {},
                        .decoder_start = static_cast<std::int32_t>(below(prompt.size())),
                        .prompt_logits = chance(4),
                        .cache_key = chance(5) ? std::nullopt : std::optional<Hash>(Hash{below(2), 7})});
    }

    void abort() {
        const auto id = static_cast<RequestId>(below(added_));
        scheduler_.finish(id);
        scheduler_.check();
        expected_[id].ended = true;
    }

    void forget() {
        const auto block = static_cast<Block>(below(static_cast<std::size_t>(limits_.num_blocks)));
        chance(4) ? scheduler_.forget_all() : scheduler_.forget(std::span(&block, 1));
        scheduler_.check();
    }

    bool step_or_commit(std::size_t depth) {
        bool moved = plan();
        while (!in_flight_.empty() && (!moved || in_flight_.size() > depth)) {
            commit();
            moved = true;
        }
        return moved;
    }

    bool plan() {
        auto plan = scheduler_.plan();
        scheduler_.check();
        if (plan == nullptr) return false;
        for (const Running& step : in_flight_) {
            const std::set<Slot> used(step.plan->slot.begin(), step.plan->slot.end());
            for (const Slot slot : plan->new_slots) CHECK(!used.contains(slot));
        }
        for (std::size_t i = 0; i < plan->new_slots.size(); ++i) {
            const Expected& expected = expected_[plan->new_slot_requests[i]];
            Tokens tokens = expected.prompt;
            tokens.insert(tokens.end(), expected.got.begin(), expected.got.end());
            tokens.resize(static_cast<std::size_t>(plan->new_slot_cached[i]));
            device_[plan->new_slots[i]] = tokens;
        }
        Running step{.plan = std::move(plan), .tokens = {}, .counts = {}};
        execute(step);
        in_flight_.push_back(std::move(step));
        return true;
    }

    // The device's tokens of each slot advance as those of a real one would: known tokens, then its own samples.
    void execute(Running& step) {
        const StepPlan& plan = *step.plan;
        std::size_t row = 0;
        for (std::size_t i = 0; i < plan.request.size(); ++i) {
            Tokens& tokens = device_[plan.slot[i]];
            const auto count = static_cast<std::size_t>(plan.num_rows[i]);
            std::size_t samples = plan.sample_start[i] >= 0 ? 1 : 0;
            if (plan.kind[i] == static_cast<std::int32_t>(SegmentKind::decode)) {
                CHECK(static_cast<std::size_t>(plan.first_position[i]) + 1 >= tokens.size());
                samples = 1 + below(count);
            } else {
                CHECK(static_cast<std::size_t>(plan.first_position[i]) == tokens.size());
                const auto first = plan.tokens.begin() + static_cast<std::ptrdiff_t>(row);
                tokens.insert(tokens.end(), first, first + static_cast<std::ptrdiff_t>(count));
            }
            row += count;
            if (samples > 0) sample(tokens, samples, step);
        }
    }

    void sample(Tokens& tokens, std::size_t count, Running& step) {
        const std::size_t width = static_cast<std::size_t>(limits_.max_drafts) + 1;
        const std::size_t end = step.tokens.size() + width;
        for (std::size_t j = 0; j < count; ++j) {
            tokens.push_back(next_token(tokens, tokens.size()));
            step.tokens.push_back(tokens.back());
        }
        step.tokens.resize(end, -1);
        step.counts.push_back(static_cast<std::int32_t>(count));
    }

    void commit() {
        const Running step = std::move(in_flight_.front());
        in_flight_.pop_front();
        const Committed committed = scheduler_.commit(step.plan->step, step.tokens, step.counts);
        scheduler_.check();
        const std::size_t width = static_cast<std::size_t>(limits_.max_drafts) + 1;
        for (std::size_t i = 0; i < committed.request.size(); ++i) {
            Expected& expected = expected_[committed.request[i]];
            const auto accepted = static_cast<std::size_t>(committed.accepted[i]);
            CHECK(accepted == 0 || !expected.ended);
            for (std::size_t j = 0; j < accepted; ++j) {
                Tokens so_far = expected.prompt;
                so_far.insert(so_far.end(), expected.got.begin(), expected.got.end());
                CHECK(step.tokens[i * width + j] == next_token(so_far, so_far.size()));
                expected.got.push_back(step.tokens[i * width + j]);
            }
            if (committed.finish[i] == static_cast<std::int32_t>(FinishCode::none)) continue;
            CHECK(!expected.ended && expected.prompt.size() + expected.got.size() == expected.length);
            expected.ended = true;
        }
    }

    const Limits limits_;
    Scheduler scheduler_;
    std::mt19937 random_;
    std::size_t added_ = 0;
    std::map<RequestId, Expected> expected_;
    std::map<Slot, Tokens> device_;
    std::deque<Running> in_flight_;
};

}  // namespace

TEST(random_lives_end_with_their_own_answers_and_all_memory_back) {
    std::int64_t preemptions = 0, hit_tokens = 0;
    for (std::uint32_t seed = 0; seed < 100; ++seed) {
        std::mt19937 random(seed);
        const auto between = [&](std::uint32_t low, std::uint32_t high) {
            return static_cast<std::int32_t>(low + random() % (high - low + 1));
        };
        const std::int32_t block_size = between(1, 5);
        World world({.max_slots = between(1, 6),
                     .num_blocks = (29 + block_size - 1) / block_size + between(0, 6),
                     .block_size = block_size,
                     .max_step_tokens = between(1, 16),
                     .max_length = 64,
                     .max_drafts = between(0, 4),
                     .prefix = PrefixRules{between(0, 3), between(0, 3), between(0, 6), between(0, 3)}},
                    seed);
        world.run(30, static_cast<std::size_t>(between(0, 2)));
        preemptions += world.preemptions();
        hit_tokens += world.hit_tokens();
    }
    CHECK(preemptions > 50);
    CHECK(hit_tokens > 1000);
}
