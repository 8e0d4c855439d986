"""Aborts, preemptions and broken invariants at each moment, with the prefix cache on: neighbours answer as ever, every
request ends once, and what had ended before is not lost."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
from engine_kit import EXACT_REPLAY, Kit, Sizes, greedy, make_kit, request, run, solo
from fake_model import INFO

from deepinfer_core.api.errors import DeviceError
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.engine.admission import Admission
from deepinfer_core.interfaces.scheduler import PrefixRules

B = 4
PROMPT = random.Random(5).choices(range(8, 60), k=30)
CHUNKS = Sizes(step_tokens=7, block_size=B, prefix=EXACT_REPLAY)  # 30 tokens and a decoding neighbour: five chunks
LIFE = 12  # steps: five chunks, seven decodes


@cache
def answer_of(length: int, max_tokens: int) -> tuple[int, ...]:
    return solo(greedy(PROMPT[:length], max_tokens=max_tokens, ignore_eos=True)).outputs[0].token_ids


def finish(kit: Kit) -> dict[int, RequestOutput]:
    done: dict[int, RequestOutput] = {}
    while kit.engine.has_unfinished():
        for finished in kit.engine.step():
            assert finished.key not in done, "a request ended twice"
            done[finished.key] = finished.output
        kit.scheduler.check()
    return done


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("moment", range(LIFE))
def test_an_abort_at_any_moment_harms_nobody_who_shares(moment: int, overlap: bool) -> None:
    kit = make_kit(replace(CHUNKS, overlap=overlap))
    neighbour = kit.engine.add(greedy([11, 12], max_tokens=14, ignore_eos=True))
    victim = kit.engine.add(greedy(PROMPT, max_tokens=7, ignore_eos=True))
    for _ in range(moment):
        assert not kit.engine.step()
    sharer = kit.engine.add(greedy(PROMPT[:27], max_tokens=6, ignore_eos=True))
    early = kit.engine.step()
    kit.engine.abort(victim)
    done = {finished.key: finished.output for finished in early} | finish(kit)
    assert done[neighbour].outputs == solo(greedy([11, 12], max_tokens=14, ignore_eos=True)).outputs
    assert done[sharer].outputs[0].token_ids == answer_of(27, 6)
    (left,) = done[victim].outputs
    assert left.token_ids == answer_of(30, 7)[: len(left.token_ids)]
    assert len(done) == 3
    kit.engine.forget_prefixes()
    kit.assert_idle()
    assert kit.engine.stats().free_blocks == kit.sizes.blocks


@pytest.mark.parametrize("prefix", [None, EXACT_REPLAY], ids=["cold", "cached"])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("older", range(1, 9))
def test_a_preemption_at_any_moment_changes_no_answer(older: int, overlap: bool, prefix: PrefixRules | None) -> None:
    """The older request begins its next block at another moment of the victim's life in each case."""
    kit = make_kit(Sizes(2, 15, 2, 9, max_length=28, overlap=overlap, prefix=prefix))
    first = greedy(PROMPT[-older:], max_tokens=28 - older, ignore_eos=True)
    victim = greedy(PROMPT[:9], max_tokens=19, ignore_eos=True)
    outputs = run(kit, [first, victim])
    assert outputs[0].outputs == solo(first).outputs
    assert outputs[1].outputs[0].token_ids == answer_of(9, 19)
    assert kit.engine.stats().preemptions > 0
    kit.assert_idle()


def test_a_broken_invariant_loses_no_answer_that_was_finished() -> None:
    kit = make_kit(CHUNKS)
    fine = kit.engine.add(greedy([9], max_tokens=1))
    kit.engine.add(greedy(PROMPT, max_tokens=9))
    whole = kit.scheduler.commit

    def commit(step, tokens, counts):
        if step == 1:
            raise AssertionError("free + used + cached blocks differ from the total")
        return whole(step, tokens, counts)

    kit.scheduler.commit = commit  # type: ignore[method-assign]
    done = kit.engine.step() + kit.engine.step()
    refused = kit.engine.add(greedy([]))
    with pytest.raises(AssertionError, match="free"):
        kit.engine.step()
    done += kit.engine.step()
    assert {finished.key for finished in done} == {fine, refused}
    with pytest.raises(DeviceError, match="broken off by AssertionError"):
        kit.engine.step()


@pytest.mark.parametrize("prompt", [PROMPT[:24], PROMPT[:25]])
def test_bounded_replay_is_named_wherever_an_answer_began_with_it(prompt: list[int]) -> None:
    """Also where the first answer was computed whole, and only the others shared what it left."""
    rows = INFO.decoder_rows
    sizes = Sizes(slots=1, block_size=B, prefix=PrefixRules(rows, 0, rows, EXACT_REPLAY.history_rows))
    kit = make_kit(sizes, replay="bounded")
    (output,) = run(kit, [request(prompt, max_tokens=3, n=2, seed=1)])
    assert (output.num_cached_tokens, output.replay) == (0, "bounded")
    (alone,) = run(make_kit(sizes, replay="bounded"), [request(prompt, max_tokens=3, seed=1)])
    assert (alone.num_cached_tokens, alone.replay) == (0, None)


def test_no_two_engines_name_blocks_alike() -> None:
    """Who knows the key of the hash could make prompts whose blocks collide."""
    engines = [Admission(INFO, None, {}, {}, max_length=64, decoder_rows=3, seed=1) for _ in range(2)]
    keys = [one.admit(replace(greedy([9]), cache_salt=salt)).cache_key for one in engines for salt in (None, "a")]
    assert len(set(keys)) == 4
    assert keys[0] == engines[0].admit(greedy([9, 10])).cache_key
    assert all(len(key) == 16 for key in keys)
