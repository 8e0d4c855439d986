"""The tests of the C++ scheduler and prefix cache bite: each mutant below is wrong in one place, and the test that is
named with it fails. All mutants are built into one module; a number in the environment says which of them is on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pybind11
import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "deepinfer_core" / "csrc"
CHOICE = "NATIVE_MUTANT"
SWITCH = f"""
#include <cstdlib>
inline int mutant() {{
    static const int chosen = std::atoi(std::getenv("{CHOICE}"));
    return chosen;
}}
"""
OPTIONS = ["-O0", "-std=c++20", "-fPIC", "-w", f"-I{pybind11.get_include()}", f"-I{sysconfig.get_path('include')}"]


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
        "prefix.py::test_a_prompt_that_comes_again_spares_all_full_blocks_but_its_last_token[8]",
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
        "std::min<std::int64_t>(prompt + request.max_new_tokens, limits_.max_length));\n    const RequestId",
        "std::min<std::int64_t>(prompt + request.max_new_tokens + ON, limits_.max_length));\n    const RequestId",
        "abort.py::test_an_abort_while_waiting_leaves_the_others_in_order",
    ),
]
NUMBERS = {one.name: number for number, one in enumerate([*WEAKNESSES, *MUTANTS], 1)}


def is_on(one: Mutant) -> str:
    """The condition under which a mutant is on: chosen itself, or needed by the chosen one."""
    chosen = [one.name, *(other.name for other in MUTANTS if other.weak == one.name)]
    return "(" + " || ".join(f"mutant() == {NUMBERS[name]}" for name in chosen) + ")"


def mutated(folder: Path) -> Path:
    """The sources with every mutant in them."""
    shutil.copytree(SOURCES, folder)
    types = folder / "types.hpp"
    types.write_text(types.read_text().replace("#pragma once\n", "#pragma once\n" + SWITCH, 1))
    for one in [*WEAKNESSES, *MUTANTS]:
        file = folder / one.file
        text = file.read_text()
        assert text.count(one.right) == 1, f"{one.name}: {one.file} does not have {one.right!r} once"
        file.write_text(text.replace(one.right, one.wrong.replace("ON", is_on(one))))
    return folder


def build(sources: Path) -> Path:
    """One module of all sources, compiled in two halves at a time."""
    compiler = os.environ.get("CXX", "c++")
    halves = [sources / "bindings.cpp", sources / "core.cpp"]
    files = sorted(file.name for file in sources.glob("*.cpp") if file != halves[0])
    halves[1].write_text("".join(f'#include "{name}"\n' for name in files))
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run, compiler, *OPTIONS, "-c", half, "-o", half.with_suffix(".o")) for half in halves]
    for job in jobs:
        assert job.result().returncode == 0, job.result().stderr
    module = sources / "_native.so"
    linked = run(compiler, "-shared", *(half.with_suffix(".o") for half in halves), "-o", module)
    assert linked.returncode == 0, linked.stderr
    return module


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    parts, everything = [str(part) for part in command], os.environ | environment
    return subprocess.run(parts, capture_output=True, text=True, check=False, env=everything, timeout=300)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(mutated(tmp_path_factory.mktemp("native") / "csrc"))


def judge(module: Path, number: int, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests with one mutant on, 0 for none. Nothing but pytest itself is loaded: it is short."""
    where = [f"{HERE}/{test}" for test in tests]
    flags = ["-q", "--noconftest", "-p", "no:cacheprovider", "--tb=short"]
    switches = {CHOICE: str(number), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return run(sys.executable, HERE / "with_native.py", module, *flags, *where, **switches)


def test_without_a_mutant_all_those_tests_pass(module: Path) -> None:
    done = judge(module, 0, *sorted({one.killer for one in MUTANTS}))
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr


@pytest.mark.parametrize("one", WEAKNESSES, ids=lambda one: one.name)
def test_hashes_that_collide_do_no_harm(module: Path, one: Mutant) -> None:
    done = judge(module, NUMBERS[one.name], one.killer)
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_a_mutant_fails_its_test(module: Path, one: Mutant) -> None:
    done = judge(module, NUMBERS[one.name], one.killer)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    assert "assert" in done.stdout.lower(), f"no check of ours has failed:\n{done.stdout}"


def test_a_broken_invariant_is_reported_with_the_state(module: Path) -> None:
    """What was counted when it failed is what one needs to find out why."""
    (one,) = (one for one in MUTANTS if one.name == "slot_stays_taken")
    report = judge(module, NUMBERS[one.name], one.killer).stdout
    assert "a slot is taken and not held, or held twice; at step" in report
    assert "of 16 blocks" in report
    assert "of 4 slots" in report
