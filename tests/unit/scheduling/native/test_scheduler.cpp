// The scheduler's edges that Python cannot reach, or that a sanitizer should see. Behaviour is tested from Python.
#include <limits>
#include <memory>
#include <vector>

#include "scheduler.hpp"
#include "testing.hpp"

using namespace deepinfer;

namespace {

constexpr Limits sizes{
    .max_slots = 2, .num_blocks = 8, .block_size = 4, .max_step_tokens = 8, .max_length = 32, .max_drafts = 1};

Request request(RequestId id, std::size_t prompt, std::int64_t max_new_tokens) {
    return {.id = id,
            .prompt = std::vector<Token>(prompt, 1),
            .max_new_tokens = max_new_tokens,
            .min_new_tokens = 0,
            .stop_tokens = {},
            .decoder_start = 0,
            .prompt_logits = false};
}

}  // namespace

TEST(a_refused_request_leaves_no_trace) {
    Scheduler scheduler(sizes);
    CHECK_THROWS(RequestRefused, scheduler.add(request(0, 0, 1)));
    CHECK_THROWS(RequestRefused, scheduler.add(request(0, 33, 1)));
    scheduler.check();
    CHECK(scheduler.stats().waiting == 0);
    CHECK(scheduler.plan() == nullptr);
    scheduler.add(request(0, 1, 1));
    CHECK(scheduler.stats().waiting == 1);
}

TEST(the_largest_numbers_do_not_overflow) {
    Scheduler scheduler(sizes);
    scheduler.add(request(std::numeric_limits<RequestId>::max(), 4, std::numeric_limits<std::int32_t>::max()));
    const auto plan = scheduler.plan();
    CHECK(plan != nullptr && plan->request[0] == std::numeric_limits<RequestId>::max());

    constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
    Scheduler large({.max_slots = 1,
                     .num_blocks = 1,
                     .block_size = most,
                     .max_step_tokens = most,
                     .max_length = most,
                     .max_drafts = 0});
    large.add(request(0, 4, most));
    CHECK(large.plan() != nullptr);
    large.check();
}

TEST(results_of_the_wrong_size_are_refused_and_change_nothing) {
    Scheduler scheduler(sizes);
    scheduler.add(request(0, 4, 8));
    const auto plan = scheduler.plan();
    const std::vector<Token> tokens{5, -1};
    const std::vector<std::int32_t> counts{1};
    CHECK_THROWS(std::invalid_argument, scheduler.commit(plan->step, std::span(tokens).first(1), counts));
    CHECK_THROWS(std::invalid_argument, scheduler.commit(plan->step, tokens, {}));
    CHECK_THROWS(std::invalid_argument, scheduler.commit(plan->step + 1, tokens, counts));
    scheduler.check();
    const Committed committed = scheduler.commit(plan->step, tokens, counts);
    CHECK(committed.accepted == std::vector<std::int32_t>{1});
}

TEST(a_scheduler_may_be_dropped_with_steps_in_flight) {
    auto scheduler = std::make_unique<Scheduler>(sizes);
    scheduler->add(request(0, 12, 8));
    scheduler->add(request(1, 12, 8));
    const auto plan = scheduler->plan();
    scheduler->finish(0);
    scheduler.reset();
    CHECK(plan->request.size() == 1);
}
