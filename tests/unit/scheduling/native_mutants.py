"""Mutants of the C++ scheduler and prefix cache, each wrong in one place, and the test that must notice each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`right`, which `file` has once, becomes `wrong`, in which ON is true while the mutant is on."""

    name: str
    file: str
    right: str
    wrong: str
    killer: str  # a test
    weak: str = ""  # a weakness of hashes that is on too; alone, it does no harm


def mutant(name: str, file: str, right: str, wrong: str, killer: str, weak: str = "") -> Mutant:
    return Mutant(name, file, right, wrong, f"test_scheduler_{killer}", weak)


# What makes hashes collide is no mutant where tokens and parents are compared.
WEAKNESSES = [
    mutant(
        "hash_ignores_the_tokens",
        "prefix_cache.cpp",
        "std::memcpy(data.data() + sizeof before,",
        "if (!ON) std::memcpy(data.data() + sizeof before,",
        "prefix.py::test_what_differs_is_never_shared[0]",
    ),
]
MUTANTS = [
    # names and what they lead to
    mutant(
        "hash_ignores_the_parent",
        "prefix_cache.cpp",
        "before{parent.low, parent.high}",
        "before{ON ? 0 : parent.low, ON ? 0 : parent.high}",
        "prefix.py::test_equal_blocks_after_different_beginnings_are_two",
    ),
    mutant(
        "tokens_not_compared",
        "prefix_cache.cpp",
        "std::ranges::equal(tokens(block), content.tokens)",
        "(ON || std::ranges::equal(tokens(block), content.tokens))",
        "prefix.py::test_what_differs_is_never_shared[0]",
        weak="hash_ignores_the_tokens",
    ),
    mutant(
        "parent_not_compared",
        "prefix_cache.cpp",
        "entries_[at(block)].parent == content.parent &&",
        "(ON || entries_[at(block)].parent == content.parent) &&",
        "prefix.py::test_equal_blocks_after_different_beginnings_are_two",
        weak="hash_ignores_the_parent",
    ),
    mutant(
        "key_ignored",
        "sharing.cpp",
        "chain_hash(*sequence.cache_key,",
        "chain_hash(ON ? Hash{} : *sequence.cache_key,",
        "prefix.py::test_salts_part_requests_and_no_key_shares_nothing",
    ),
    mutant(
        "forgotten_block_keeps_its_name",
        "prefix_cache.cpp",
        "by_hash_.erase(entry.hash);",
        "if (!ON) by_hash_.erase(entry.hash);",
        "prefix.py::test_forgotten_blocks_are_not_found_and_users_go_on",
    ),
    mutant(
        "hit_for_a_request_that_wants_every_row",
        "sharing.cpp",
        "|| sequence.prompt_logits) return hit;",
        "|| (sequence.prompt_logits && !ON)) return hit;",
        "prefix.py::test_a_request_that_wants_every_row_takes_no_hit_and_leaves_blocks_for_others",
    ),
    # when a block is offered
    mutant(
        "offered_before_its_step_is_planned",
        "planner.cpp",
        "        plan_chunk(sequence, builder, step);\n    }\n}\n\nvoid Scheduler::plan_decode(",
        "        plan_chunk(sequence, builder, step);\n        if (ON) offer(sequence);\n    }\n}\n\n"
        "void Scheduler::plan_decode(",
        "prefix.py::test_two_that_arrive_together_compute_alone_and_later_ones_share",
    ),
    mutant(
        "offered_while_its_prefill_is_not_planned",
        "sequence.hpp",
        "std::max(prefilled, known() - 1) : prefilled;",
        "std::max(prefilled, known() - 1) : ON ? std::max(prefilled, known() - 1) : prefilled;",
        "prefix.py::test_a_prompt_under_way_is_shared_as_far_as_its_steps_are_planned[3]",
    ),
    mutant(
        "newest_token_offered_without_its_row",
        "sequence.hpp",
        "return decoding ? std::max(prefilled, known() - 1)",
        "return decoding ? std::max(prefilled, known() - (ON ? 0 : 1))",
        "prefix.py::test_answers_are_cached_too[10]",
    ),
    # what a hit spares
    mutant(
        "one_row_too_many_is_spared",
        "sharing.cpp",
        "hit - rules.key_rows, std::max(first, last)",
        "hit - rules.key_rows + ON, std::max(first, last) + ON",
        "prefix.py::test_a_hit_spares_what_the_rules_leave[24-rules0]",
    ),
    mutant(
        "whole_prompt_is_spared",
        "sharing.cpp",
        "sequence.known() - 1 - rules.logit_rows;",
        "sequence.known() - (ON ? 0 : 1) - rules.logit_rows;",
        "prefix.py::test_a_prompt_that_comes_again_spares_all_full_blocks_but_its_last_token[8-0]",
    ),
    mutant(
        "rows_of_a_hit_write_to_shared_blocks",
        "sharing.cpp",
        "sequence.write_start = static_cast<std::int32_t>(hit.blocks.size())",
        "sequence.write_start = (ON ? 0 : 1) * static_cast<std::int32_t>(hit.blocks.size())",
        "prefix.py::test_counters_add_up",
    ),
    mutant(
        "past_of_a_hit_is_one_token_off",
        "step_builder.cpp",
        "sequence.tokens[static_cast<std::size_t>(p)]",
        "sequence.tokens[static_cast<std::size_t>(p + ON)]",
        "prefix.py::test_the_past_of_a_hit_comes_with_its_slot",
    ),
    # who owns a block
    mutant(
        "hit_not_retained",
        "sharing.cpp",
        "blocks_.retain(block);",
        "if (!ON) blocks_.retain(block);",
        "prefix.py::test_answers_are_cached_too[11]",
    ),
    mutant(
        "freed_by_the_last_owner_but_one",
        "block_pool.cpp",
        "if (--owners_[static_cast<std::size_t>(block)] > 0) continue;",
        "if (--owners_[static_cast<std::size_t>(block)] > ON) continue;",
        "prefix.py::test_two_that_arrive_together_compute_alone_and_later_ones_share",
    ),
    mutant(
        "newest_block_evicted_first",
        "prefix_cache.cpp",
        "const Block oldest = next_.back();",
        "const Block oldest = ON ? previous_.back() : next_.back();",
        "prefix.py::test_the_oldest_unused_blocks_make_room_ends_of_chains_first",
    ),
    mutant(
        "beginning_of_a_chain_evicted_first",
        "block_pool.cpp",
        "for (const Block block : blocks | std::views::reverse) {",
        "for (std::size_t i = 0; i < blocks.size(); ++i) {\n"
        "        const Block block = blocks[ON ? i : blocks.size() - 1 - i];",
        "prefix.py::test_the_oldest_unused_blocks_make_room_ends_of_chains_first",
    ),
    mutant(
        "blocks_of_a_hit_counted_twice",
        "planner.cpp",
        "const std::int64_t owned = std::ranges::count_if(hit.blocks,",
        "const std::int64_t owned = ON ? std::ssize(hit.blocks) : std::ranges::count_if(hit.blocks,",
        "prefix.py::test_unused_blocks_of_a_hit_are_not_room_for_what_follows",
    ),
    mutant(
        "refused_until_somebody_ends",
        "planner.cpp",
        "if (refused_->found < full &&",
        "if (!ON && refused_->found < full &&",
        "moments.py::test_one_that_waits_for_room_enters_when_it_can_share_another_block",
    ),
    mutant(
        "room_of_a_refusal_never_looked_at_again",
        "planner.cpp",
        "return !can_admit(sequence, refused_->owned);",
        "return ON || !can_admit(sequence, refused_->owned);",
        "moments.py::test_one_that_waits_for_room_enters_when_another_ends",
    ),
    # what comes back, and when
    mutant(
        "blocks_come_back_twice",
        "retiring.cpp",
        "blocks.release(holding.blocks);",
        "blocks.release(holding.blocks);\n        if (ON) blocks.release(holding.blocks);",
        "abort.py::test_an_abort_at_any_step_returns_everything[3-0-1]",
    ),
    mutant(
        "slot_stays_taken",
        "retiring.cpp",
        "slots.release(holding.slot);",
        "if (!ON) slots.release(holding.slot);",
        "abort.py::test_an_abort_at_any_step_returns_everything[3-0-1]",
    ),
    mutant(
        "blocks_come_back_before_the_last_step_that_uses_them",
        "retiring.cpp",
        "if (holding.last_step > committed) return false;",
        "if (!ON && holding.last_step > committed) return false;",
        "abort.py::test_slot_and_blocks_stay_taken_until_the_last_step_in_flight_is_committed",
    ),
    mutant(
        "one_block_too_many_trimmed",
        "commit.cpp",
        "blocks_for(sequence.cached_upper()));",
        "blocks_for(sequence.cached_upper()) - ON);",
        "commit.py::test_blocks_reserved_for_rejected_drafts_come_back",
    ),
    # preemption and ends
    mutant(
        "preempted_keeps_tokens_in_flight",
        "planner.cpp",
        "sequence.in_flight = 0;",
        "if (!ON) sequence.in_flight = 0;",
        "pressure.py::test_results_in_flight_of_a_preempted_request_are_dropped_and_had_again",
    ),
    mutant(
        "results_of_an_earlier_stay_are_taken",
        "commit.cpp",
        "found->second->stay == sample.stay) {",
        "(ON || found->second->stay == sample.stay)) {",
        "pressure.py::test_results_in_flight_of_a_preempted_request_are_dropped_and_had_again",
    ),
    mutant(
        "newcomers_leave_no_block_to_grow_into",
        "planner.cpp",
        "- owned + spare <=",
        "- owned + (ON ? 0 : spare) <=",
        "plan.py::test_one_spare_block_for_each_running_request_is_left_at_admission",
    ),
    mutant(
        "stop_token_counts_one_too_late",
        "sequence.hpp",
        "return before >= min_new_tokens &&",
        "return before >= min_new_tokens + ON &&",
        "commit.py::test_the_first_stop_at_or_before_the_limit_ends_a_run",
    ),
    mutant(
        "answer_one_token_too_long",
        "scheduler.cpp",
        "static_cast<std::int32_t>(longest(request, limits_.max_length));",
        "static_cast<std::int32_t>(\n"
        "        std::min<std::int64_t>(longest(request, limits_.max_length) + ON, limits_.max_length));",
        "abort.py::test_an_abort_while_waiting_leaves_the_others_in_order",
    ),
]
NUMBERS = {one.name: number for number, one in enumerate([*WEAKNESSES, *MUTANTS], 1)}
