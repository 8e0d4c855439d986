"""The sampler as a whole: rows that do not touch each other, failures that stay alone, padding, logprobs, seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_kit import GREEDY, Bench, answer
from sampling_oracle import draw, log_softmax, support

from deepinfer_core.api.params import SamplingParams
from deepinfer_core.interfaces.sampler import Sampled
from deepinfer_core.sampling.plan import TokenMask

VOCAB = 48


def random_logits(rows: int, seed: int, vocab: int = VOCAB) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 2


token = st.integers(0, VOCAB - 1)
requests = st.fixed_dictionaries(
    {
        "params": st.fixed_dictionaries(
            {},
            optional={
                "temperature": st.sampled_from([0.0, 1e-12, 0.5, 1.0, 2.0]),
                "top_k": st.sampled_from([-1, 1, 5, VOCAB, 9_999_999]),
                "top_p": st.sampled_from([1e-9, 0.5, 0.9]),
                "min_p": st.sampled_from([0.05, 0.3]),
                "min_tokens": st.integers(0, 3),
                "logprobs": st.integers(0, 4),
                "repetition_penalty": st.sampled_from([0.8, 1.5]),
                "presence_penalty": st.sampled_from([-1.0, 1.0]),
                "frequency_penalty": st.sampled_from([-0.5, 0.5]),
                "logit_bias": st.dictionaries(token, st.sampled_from([-5.0, 5.0]), max_size=3),
                "allowed_token_ids": st.lists(token, min_size=4, max_size=9, unique=True),
            },
        ),
        "seed": st.integers(0, 2**64 - 1),
        "sample": st.integers(0, 3),
        "prompt": st.lists(token, min_size=1, max_size=6),
        "output": st.lists(token, max_size=3),
        "stop_token_ids": st.lists(token, max_size=2, unique=True),
        "bad_words": st.lists(st.lists(token, min_size=1, max_size=3), max_size=1),
    }
)


def give(bench: Bench, slot: int, request: dict[str, Any]) -> None:
    bench.give(slot, SamplingParams(**request["params"]), **{k: v for k, v in request.items() if k != "params"})


def row_of(sampled: Sampled, row: int, k: int | None) -> list[Any]:
    """Everything that a row's request looks at."""
    parts: list[Any] = [sampled.tokens[row].tolist(), sampled.counts[row].item(), sampled.failed[row].item()]
    if k is not None:
        assert sampled.logprob is not None
        assert sampled.rank is not None
        assert sampled.top_ids is not None
        assert sampled.top_logprobs is not None
        parts += [sampled.logprob[row].tolist(), sampled.rank[row].tolist()]
        parts += [sampled.top_ids[row, :, :k].tolist(), sampled.top_logprobs[row, :, :k].tolist()]
    return parts


@pytest.mark.parametrize("mode", ["raw", "processed"])
@settings(max_examples=25)
@given(st.lists(requests, min_size=2, max_size=6), st.integers(0, 1000), st.randoms(use_true_random=False))
def test_every_row_equals_its_solo_run(mode: str, given_: list[dict[str, Any]], seed: int, rng: Any) -> None:
    """Any mix of requests, in any rows, with slots that others used before: the same bits as alone in slot 0."""
    steps, n = 2, len(given_)
    bench = Bench(VOCAB, slots=2 * n, logprobs_mode=mode)
    slots = rng.sample(range(2 * n), n)
    for slot in range(2 * n):
        give(bench, slot, given_[rng.randrange(n)])
    bench.step(list(range(2 * n)), random_logits(2 * n, seed + 77))
    for slot, request in zip(slots, given_, strict=True):
        give(bench, slot, request)
    together: list[list[Any]] = [[] for _ in given_]
    for step in range(steps):
        order = rng.sample(range(n), n)
        sampled = bench.step([slots[i] for i in order], random_logits(n, seed + step)[order])
        for row, i in enumerate(order):
            together[i].append(row_of(sampled, row, given_[i]["params"].get("logprobs")))
    for i, request in enumerate(given_):
        solo = Bench(VOCAB, slots=1, logprobs_mode=mode)
        give(solo, 0, request)
        for step in range(steps):
            alone = solo.step([0], random_logits(n, seed + step)[i : i + 1])
            assert row_of(alone, 0, request["params"].get("logprobs")) == together[i][step]


@given(st.lists(st.sampled_from(["greedy", "plain", "top_k", "top_p", "min_p", "all"]), min_size=1, max_size=8))
def test_mixed_draws_equal_the_oracle(kinds: list[str]) -> None:
    asked: dict[str, dict[str, Any]] = {
        "greedy": {"temperature": 0.0},
        "plain": {"temperature": 1.3},
        "top_k": {"top_k": 4},
        "top_p": {"top_p": 0.6},
        "min_p": {"min_p": 0.2},
        "all": {"temperature": 0.8, "top_k": 12, "top_p": 0.9, "min_p": 0.02},
    }
    logits = random_logits(len(kinds), len(kinds))
    bench = Bench(VOCAB)
    for slot, kind in enumerate(kinds):
        bench.give(slot, SamplingParams(**asked[kind]), seed=1000 + slot, sample=slot, prompt=[0] * (slot + 1))
    sampled = bench.step(list(range(len(kinds))), logits)
    expected = [
        draw(logits[slot].tolist(), **asked[kind], seed=1000 + slot, sample=slot, position=slot + 1)
        for slot, kind in enumerate(kinds)
    ]
    assert sampled.tokens[:, 0].tolist() == expected
    assert sampled.counts.tolist() == [1] * len(kinds)


@pytest.mark.parametrize(
    "setting",
    [{"temperature": 1e-12}, {"top_k": 9_999_999}, {"top_p": 1e-9}, {"top_k": VOCAB}, {"top_k": -1}, {"top_k": 1}],
    ids=str,
)
def test_extreme_settings_among_ordinary_ones(setting: dict[str, Any]) -> None:
    logits = random_logits(3, 5)
    bench = Bench(VOCAB)
    for slot, params in enumerate([GREEDY, SamplingParams(**setting), SamplingParams(top_k=3)]):
        bench.give(slot, params, seed=4)
    token = bench.step([0, 1, 2], logits).tokens[1, 0].item()
    assert token == draw(logits[1].tolist(), **setting, seed=4, position=1)


@pytest.mark.parametrize(("params", "kept"), [({"top_k": 6}, 6), ({"top_k": 30}, 30), ({"top_p": 0.2}, 8)], ids=str)
def test_all_that_a_filter_keeps_can_come_and_nothing_else(params: dict[str, Any], kept: int) -> None:
    bench = Bench(40, slots=500)
    for slot in range(500):
        bench.give(slot, SamplingParams(**params), seed=slot)
    tokens = bench.step(list(range(500)), torch.zeros(500, 40)).tokens
    assert sorted(set(tokens[:, 0].tolist())) == list(range(kept))


class TestSeeds:
    FLAT = (0.0,) * 40

    def test_samples_of_one_seed_differ_and_repeat(self) -> None:
        plain = SamplingParams()
        answers = [answer(self.FLAT, 8, plain, seed=5, sample=i) for i in range(3)]
        assert len({tuple(tokens) for tokens in answers}) == 3
        assert [answer(self.FLAT, 8, plain, seed=5, sample=i) for i in range(3)] == answers

    def test_every_bit_of_the_seed_counts(self) -> None:
        seeds = [0, 1, 2**31, 2**32, 2**63, 2**64 - 1]
        answers = {tuple(answer(self.FLAT, 8, SamplingParams(), seed=seed)) for seed in seeds}
        assert len(answers) == len(seeds)

    def test_a_recycled_slot_uses_the_new_seed(self) -> None:
        bench = Bench(40, slots=1)
        bench.give(0, SamplingParams(), seed=30)
        first = bench.run(0, self.FLAT, 8)
        bench.give(0, SamplingParams(), seed=31)
        assert bench.run(0, self.FLAT, 8) == answer(self.FLAT, 8, SamplingParams(), seed=31) != first

    def test_a_resumed_request_draws_what_it_would_have_drawn(self) -> None:
        whole = answer(self.FLAT, 10, SamplingParams(), seed=9)
        assert answer(self.FLAT, 6, SamplingParams(), seed=9, output=whole[:4]) == whole[4:]


class TestFailures:
    def sample(self, poison: torch.Tensor, params: SamplingParams) -> tuple[Sampled, Sampled]:
        """A batch whose middle row is poisoned, and the same batch with an honest row there."""
        results = []
        for middle in (poison, random_logits(1, 1)[0]):
            bench = Bench(VOCAB)
            for slot in range(3):
                bench.give(slot, params, seed=slot)
            results.append(bench.step([0, 1, 2], torch.stack([random_logits(1, 2)[0], middle, random_logits(1, 3)[0]])))
        return results[0], results[1]

    @pytest.mark.parametrize(
        "params", [{"temperature": 0.0}, {}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}], ids=str
    )
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_row_that_is_not_numbers_fails_alone(self, value: float, params: dict[str, Any]) -> None:
        poison = random_logits(1, 1)[0]
        poison[VOCAB - 1 if value != -math.inf else slice(None)] = value
        wanted = SamplingParams(**params, logprobs=2, presence_penalty=0.5)
        poisoned, clean = self.sample(poison, wanted)
        assert poisoned.failed.tolist() == [False, True, False]
        assert not clean.failed.any()
        assert poisoned.tokens[1, 0].item() == 0
        for row in (0, 2):
            assert row_of(poisoned, row, 2) == row_of(clean, row, 2)

    def test_one_finite_logit_is_enough(self) -> None:
        poison = torch.full((VOCAB,), -math.inf)
        poison[17] = -3.0
        sampled, _ = self.sample(poison, SamplingParams(top_p=0.9))
        assert not sampled.failed.any()
        assert sampled.tokens[1, 0].item() == 17

    def test_stages_that_leave_nothing_fail_their_row_alone(self) -> None:
        logits = random_logits(2, 0)
        logits[0] = -math.inf
        logits[0, 7] = 0.0
        bench = Bench(VOCAB)
        bench.give(0, SamplingParams(), bad_words=[(7,)])
        bench.give(1, SamplingParams(), bad_words=[(7,)])
        sampled = bench.step([0, 1], logits)
        assert sampled.failed.tolist() == [True, False]
        assert sampled.tokens[0, 0].item() == 0

    def test_an_empty_constraint_mask_fails_its_row_alone(self) -> None:
        bench = Bench(VOCAB)
        bench.give(0, GREEDY)
        bench.give(1, GREEDY)
        mask = TokenMask(torch.tensor([1]), torch.zeros(1, -(-VOCAB // 32), dtype=torch.int32))
        assert bench.step([0, 1], random_logits(2, 0), mask).failed.tolist() == [False, True]


class TestPadding:
    """A head with more columns than the tokenizer has ids."""

    @pytest.mark.parametrize(
        "params", [{"temperature": 0.0}, {}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}], ids=str
    )
    @pytest.mark.parametrize("padding", [99.0, math.nan, math.inf])
    def test_it_changes_nothing(self, padding: float, params: dict[str, Any]) -> None:
        logits = random_logits(4, 0)
        padded = torch.cat([logits, torch.full((4, 11), padding)], dim=1)
        results = []
        for given_ in (logits, padded):
            bench = Bench(VOCAB)
            for slot in range(4):
                bench.give(slot, SamplingParams(**params, logprobs=3, logit_bias={0: 1.0}), seed=slot)
            sampled = bench.step([0, 1, 2, 3], given_)
            results.append([row_of(sampled, row, 3) for row in range(4)])
        assert results[0] == results[1]

    def test_prompts_are_scored_without_it(self) -> None:
        logits = random_logits(3, 0)
        padded = torch.cat([logits, torch.full((3, 2), 99.0)], dim=1)
        tokens = torch.tensor([1, 2, 3])
        plain, scored = (Bench(VOCAB).sampler.score(x, tokens, 4) for x in (logits, padded))
        assert torch.equal(plain.logprob, scored.logprob)
        assert torch.equal(plain.top_ids, scored.top_ids)

    def test_in_a_prompt_it_has_no_probability(self) -> None:
        scores = Bench(VOCAB).sampler.score(torch.zeros(2, VOCAB + 3), torch.tensor([VOCAB + 2, VOCAB - 1]), 1)
        assert scores.logprob.tolist() == [-math.inf, pytest.approx(-math.log(VOCAB))]
        assert scores.rank.tolist() == [VOCAB + 1, VOCAB]


WISHES: dict[str, Any] = {"temperature": 0.7, "top_k": 4, "logit_bias": {3: 2.0}, "repetition_penalty": 1.3}


class TestLogprobs:
    def sample(self, mode: str, **params: Any) -> tuple[torch.Tensor, Sampled]:
        logits = random_logits(3, 8)
        bench = Bench(VOCAB, logprobs_mode=mode)
        bench.give(0, GREEDY)
        bench.give(1, SamplingParams(**params), seed=2, prompt=[3])
        bench.give(2, GREEDY.replace(logprobs=1))
        return logits, bench.step([0, 1, 2], logits)

    def test_raw_ones_are_of_the_models_logits(self) -> None:
        logits, sampled = self.sample("raw", **WISHES, logprobs=6)
        assert sampled.logprob is not None
        assert sampled.top_ids is not None
        expected, token = log_softmax(logits[1].tolist()), sampled.tokens[1, 0].item()
        assert sampled.logprob[1, 0].item() == pytest.approx(expected[token], abs=1e-5)
        assert sampled.top_ids[1, 0].tolist() == np.argsort(-expected, kind="stable")[:6].tolist()

    def test_processed_ones_are_of_what_was_drawn_from(self) -> None:
        logits, sampled = self.sample("processed", **WISHES, logprobs=6)
        changed = logits[1].tolist()
        changed[3] = (changed[3] + 2.0) / 1.3 if changed[3] + 2.0 > 0 else (changed[3] + 2.0) * 1.3
        ids = support(changed, 0.7, 4, 1.0, 0.0)
        expected = log_softmax([changed[i] / 0.7 for i in ids])
        assert sampled.top_ids is not None
        assert sampled.top_logprobs is not None
        assert sampled.logprob is not None
        assert sampled.top_ids[1, 0].tolist() == [*ids, -1, -1]
        np.testing.assert_allclose(sampled.top_logprobs[1, 0, :4].numpy(), expected, atol=1e-5)
        token = sampled.tokens[1, 0].item()
        assert sampled.logprob[1, 0].item() == pytest.approx(expected[ids.index(token)], abs=1e-5)

    def test_a_greedy_token_has_rank_1_and_comes_first(self) -> None:
        _, sampled = self.sample("raw", **WISHES)
        assert sampled.rank is not None
        assert sampled.top_ids is not None
        assert sampled.rank[2, 0].item() == 1
        assert sampled.top_ids[2, 0, 0].item() == sampled.tokens[2, 0].item()

    def test_rows_that_did_not_ask_hold_nothing(self) -> None:
        _, sampled = self.sample("raw", **WISHES, logprobs=0)
        assert sampled.logprob is not None
        assert sampled.rank is not None
        assert sampled.logprob[:, 0].isnan().tolist() == [True, False, False]
        assert sampled.rank[:, 0].tolist()[0] == 0

    def test_nobody_asking_costs_nothing(self) -> None:
        bench = Bench(VOCAB)
        bench.give(0, GREEDY)
        sampled = bench.step([0], random_logits(1, 0))
        assert sampled.logprob is sampled.rank is sampled.top_ids is sampled.top_logprobs is None


def test_logits_are_left_as_they_are() -> None:
    logits = random_logits(2, 0)
    before = logits.clone()
    bench = Bench(VOCAB)
    bench.give(0, SamplingParams(logit_bias={1: 3.0}, frequency_penalty=1.0), bad_words=[(4,), (1, 2)])
    bench.give(1, SamplingParams(min_tokens=2), stop_token_ids=[2])
    bench.step([0, 1], logits)
    assert torch.equal(logits, before)


def test_a_step_may_sample_nothing() -> None:
    sampled = Bench(VOCAB).step([], torch.empty(0, VOCAB))
    assert sampled.tokens.shape == (0, 1)


def test_plans_are_reused_while_nothing_changes_and_not_longer() -> None:
    bench = Bench(VOCAB)
    for slot in (0, 1):
        bench.give(slot, SamplingParams(logit_bias={1: 1.0}))
    bench.plan([0, 1])
    again = bench.plan([0, 1])
    assert again is bench.plan([0, 1])
    assert again.resets is None
    bench.give(1, GREEDY)
    changed = bench.plan([0, 1])
    assert [group.greedy for group in changed.groups] == [True, False]
    assert len(bench.plan([1]).groups) == 1
