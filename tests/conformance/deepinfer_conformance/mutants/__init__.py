"""Deliberately broken backends, each with one fault and the standard test that must notice it.

`pytest --pyargs deepinfer_conformance --backend=mutant:NAME` puts one under test; `python -m
deepinfer_conformance.mutants.hunt` shows that each is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from deepinfer_conformance.mutants import devices, kernels
from deepinfer_conformance.mutants.plain import PlainBackend, PlainDevice
from deepinfer_core.interfaces.backend import Backend
from deepinfer_core.interfaces.ops import Kernel

UNBROKEN = "unbroken"  # the backend that all mutants are made of: it must pass every test


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken backend. `killed_by` is the id of the standard test that fails on it; None for `unbroken`."""

    make: Callable[[], Backend]
    killed_by: str | None
    raises: str = "AssertionError"  # the class of what that test fails with, or one that it derives from


Make = Callable[[str], Backend]  # from the name under which it is registered


def _with(**replaced: Kernel) -> Make:
    return lambda name: PlainBackend(name, replaced)


def _on(device: Callable[..., PlainDevice]) -> Make:
    return lambda name: devices.OtherDevice(name, device)


_CACHE: Mapping[str, tuple[Make, str]] = {
    "slot_off_by_one": (
        _with(write_rows=kernels.write_one_row_on),
        "test_cache.py::test_rows_are_written_where_they_belong[f32]",
    ),
    "skipped_rows_written": (
        _with(write_rows=kernels.write_skipped_rows),
        "test_cache.py::test_sequences_that_share_a_block_never_write_to_it[f32]",
    ),
    "writes_beyond_its_row": (
        _with(write_rows=kernels.write_a_row_too_many),
        "test_cache.py::test_rows_are_written_where_they_belong[bf16]",
    ),
    "forgotten_ring_row": (
        _with(copy_rows=kernels.copy_all_but_the_last),
        "test_cache.py::test_rejected_drafts_leave_earlier_rows_as_they_were[9-f32]",
    ),
    "scale_read_as_number": (
        _with(read_rows=kernels.read_scales_as_numbers),
        "test_cache.py::test_a_round_trip_loses_no_more_than_the_format_must[fp8_e8m0_32]",
    ),
}

_ATTENTION: Mapping[str, tuple[Make, str]] = {
    "window_off_by_one": (
        _with(sparse_attention=kernels.attend_to_a_window_too_long),
        "test_attention.py::test_a_window_ends_where_it_must[prefill]",
    ),
    "ignored_floor": (
        _with(sparse_attention=kernels.attend_below_the_floor),
        "test_attention.py::test_a_window_ends_where_it_must[floors]",
    ),
    "ignored_sink": (
        _with(sparse_attention=kernels.attend_without_a_sink),
        "test_attention.py::test_the_sink_takes_its_share_and_gives_no_value[0.0]",
    ),
    "reads_beyond_length": (
        _with(sparse_attention=kernels.attend_to_hidden_rows_with_weight_zero),
        "test_attention.py::test_attention_is_a_softmax_over_what_a_row_may_see[0-float32-f32-one token]",
    ),
    "scores_unended_groups": (
        _with(index_scores=kernels.score_unended_groups),
        "test_attention.py::test_entries_are_scored_once_their_group_has_ended[2-f32-float32-mixed]",
    ),
    "wrong_tie_break": (
        _with(select_topk=kernels.select_the_higher_of_equals),
        "test_attention.py::test_equal_scores_fall_to_the_lower_entry[2]",
    ),
}

_SAMPLER: Mapping[str, tuple[Make, str]] = {
    "biased_sampler": (
        _with(sample_tokens=kernels.drawing(kernels.hotter)),
        "test_sampler.py::test_frequencies_are_those_of_the_softmax[no filter-1.0]",
    ),
    "philox_off_by_one": (
        _with(sample_tokens=kernels.drawing(kernels.next_stream)),
        "test_sampler.py::test_random_numbers_are_philox_to_the_bit",
    ),
    "top_k_keeps_ties": (
        _with(sample_tokens=kernels.drawing(kernels.ties_kept)),
        "test_sampler.py::test_top_k_keeps_exactly_k_of_equal_logits",
    ),
    "draws_by_row_number": (
        _with(sample_tokens=kernels.drawing(kernels.by_row_number)),
        "test_sampler.py::test_a_row_is_drawn_as_if_it_were_alone",
    ),
    "greedy_takes_the_last": (
        _with(sample_tokens=kernels.greedy_takes_the_last),
        "test_sampler.py::test_greedy_ties_fall_to_the_lowest_id[None]",
    ),
    "ignored_mask": (
        _with(apply_token_mask=kernels.mask_whole_words),
        "test_sampler.py::test_a_mask_is_never_violated[33]",
    ),
    "accepts_behind_a_rejection": (
        _with(verify_drafts=kernels.count_every_equal_draft),
        "test_sampler.py::test_drafts_hold_up_to_the_first_that_differs",
    ),
}

_OPS: Mapping[str, tuple[Make, str]] = {
    "batch_dependent_linear": (
        _with(linear=kernels.sum_in_the_batchs_order),
        "test_determinism.py::test_a_row_has_its_bits_in_any_batch[linear]",
    ),
    "drifting_norm": (
        lambda name: PlainBackend(name, {"rms_norm": kernels.drifting_norm()}),
        "test_determinism.py::test_the_same_batch_has_the_same_bits[rms_norm]",
    ),
    "padding_as_an_expert": (
        _with(moe_permute=kernels.permute_padding_as_an_expert),
        "test_ops.py::test_an_op_agrees_with_its_reference[moe_permute-float32]",
    ),
    "writes_outside_its_output": (
        _with(rms_norm=kernels.norm_in_place),
        "test_ops.py::test_an_op_writes_nothing_but_its_results[rms_norm-float32]",
    ),
}

_DEVICES: Mapping[str, tuple[Make, str]] = {
    "submit_waits": (
        _on(devices.with_queue(devices.CallersQueue)),
        "test_faults.py::test_work_that_never_ends_is_seen_and_holds_up_nobody_else",
    ),
    "swallowed_exception": (
        _on(devices.with_queue(devices.ForgivingQueue)),
        "test_faults.py::test_what_a_function_raises_is_kept_and_the_queue_goes_on[Fault]",
    ),
    "done_from_the_first": (
        _on(devices.with_queue(devices.HastyQueue)),
        "test_device.py::test_submit_returns_before_the_function_ends",
    ),
    "newest_first": (
        _on(devices.with_queue(devices.NewestFirstQueue)),
        "test_device.py::test_functions_run_in_the_order_of_submission",
    ),
    "close_drops_work": (
        _on(devices.with_queue(devices.DroppingQueue)),
        "test_device.py::test_closing_finishes_what_was_submitted_and_refuses_more",
    ),
    "memory_that_is_not_there": (_on(devices.BoastfulDevice), "test_device.py::test_memory_is_a_share_of_the_total"),
    "other_default_dtype": (
        _with(rms_norm=kernels.norm_in_double),
        "test_device.py::test_kernels_leave_the_programs_state_alone",
    ),
}

_GRAPHS_AND_GROUPS: Mapping[str, tuple[Make, str]] = {
    "stale_graph": (_on(devices.StaleDevice), "test_graph.py::test_a_replay_reads_what_its_inputs_hold_by_then"),
    "unclaimed_graph": (
        devices.GraphlessBackend,
        "test_graph.py::test_graphs_are_claimed_by_devices_that_have_a_runner_and_by_no_others",
    ),
    "swallowed_collective": (
        _on(devices.with_groups(devices.Swallowing)),
        "test_collectives.py::test_all_reduce_is_the_sum_and_the_same_everywhere",
    ),
    "barrier_for_nobody": (
        _on(devices.with_groups(devices.Impatient)),
        "test_collectives.py::test_a_barrier_waits_for_every_rank",
    ),
}


# Faults that show as an exception and not as a wrong result.
_CRASHES: Mapping[str, tuple[Make, str, str]] = {
    "zero_rows_crash": (
        _with(rms_norm=kernels.norm_of_some_rows),
        "test_ops.py::test_an_op_takes_any_number_of_rows[rms_norm-float32-0]",
        "ValueError",
    ),
    "closes_what_was_open": (
        _on(devices.LonelyDevice),
        "test_load.py::test_it_opens_again_while_it_is_open",
        "DeviceError",
    ),
}


def _mutants() -> Mapping[str, Mutant]:
    found = {UNBROKEN: Mutant(partial(PlainBackend, f"mutant:{UNBROKEN}"), None)}
    for group in (_CACHE, _ATTENTION, _SAMPLER, _OPS, _DEVICES, _GRAPHS_AND_GROUPS):
        for name, (make, killed_by) in group.items():
            found[name] = Mutant(partial(make, f"mutant:{name}"), killed_by)
    for name, (make, killed_by, raises) in _CRASHES.items():
        found[name] = Mutant(partial(make, f"mutant:{name}"), killed_by, raises)
    return found


MUTANTS: Mapping[str, Mutant] = _mutants()
