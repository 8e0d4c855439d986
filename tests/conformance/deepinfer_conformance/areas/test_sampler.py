"""Sampling: what may be drawn, how often, from which random numbers, and that a row is drawn as if it were alone."""

from __future__ import annotations

import math
import random
import struct
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from deepinfer_conformance.laws.moving import moved
from deepinfer_conformance.laws.philox_numbers import DRAWS, VOCABULARY
from deepinfer_conformance.laws.sampling import chi_square, chi_square_limit, log_softmax, noise, support
from deepinfer_conformance.subject import Subject

INF = math.inf
SEEDS = (0, 1, 7, 2**32 - 1, 2**32, 2**63, 2**64 - 1)


def signed(seed: int) -> int:
    """The int64 with the bits of an unsigned 64-bit seed."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def draw(
    subject: Subject,
    logits: Tensor,
    temperature: float | None = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int = 0,
    positions: Tensor | None = None,
    max_candidates: int | None = None,
) -> list[int]:
    """One token for each row of logits [N, V], all under the same settings; row i at position i unless told."""
    count = len(logits)
    settings = (
        None if temperature is None else torch.full((count,), temperature),
        None if top_k is None else torch.full((count,), top_k, dtype=torch.int32),
        None if top_p is None else torch.full((count,), top_p, dtype=torch.float64),
        None if min_p is None else torch.full((count,), min_p),
    )
    at = torch.arange(count) if positions is None else positions
    keys = (torch.full((count,), signed(seed)), torch.zeros(count, dtype=torch.int64), at)
    given = moved((logits, *settings, *keys), subject.torch_device)
    tokens: list[int] = subject.run(lambda: subject.ops.sample_tokens(*given, max_candidates)).cpu().tolist()
    return tokens


@pytest.mark.level("smoke")
@pytest.mark.parametrize("temperature", [None, 0.0, 9e-6])
def test_greedy_ties_fall_to_the_lowest_id(subject: Subject, temperature: float | None) -> None:
    """Both zeros are equal, and the lowest of the best may be anywhere."""
    rows = [[0.0, -0.0, 0.0], [-0.0, 0.0, 0.0], [1.0, 2.0, 2.0], [-INF, -5.0, -5.0], [3.0, 3.0, 3.0]]
    assert draw(subject, torch.tensor(rows), temperature) == [0, 0, 1, 1, 0]
    wide = torch.zeros(3, 70_001)
    for row, token in enumerate((69_999, 33_000, 64)):
        wide[row, token] = wide[row, token + 1 :: 5] = 4.0
    assert draw(subject, wide, temperature) == [69_999, 33_000, 64]


def shown(filters: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in filters.items()) or "no filter"


FILTERS = [
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 12},
    {"top_k": 1000},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_p": 1e-9},
    {"min_p": 0.6},
    {"min_p": 1.0},
    {"top_k": 9, "top_p": 0.7},
    {"top_p": 0.8, "min_p": 0.55},
    {"top_k": 14, "top_p": 0.9, "min_p": 0.5},
    {"top_k": 7, "max_candidates": 9},
    {"top_k": 7, "top_p": 0.6, "min_p": 0.5, "max_candidates": 7},
]


@pytest.mark.parametrize("filters", FILTERS, ids=shown)
@pytest.mark.parametrize("temperature", [0.7, 1.0, 4.0])
def test_the_tokens_that_can_be_drawn_are_exactly_those_that_filters_keep(
    subject: Subject, seed: int, filters: dict[str, Any], temperature: float
) -> None:
    """Logits close together and with ties: 3,000 draws miss a token that is kept once in e^40 runs."""
    generator = random.Random(seed)
    row = [round(generator.uniform(-0.6, 0.6), 1) for _ in range(24)] + [-INF] * 9
    generator.shuffle(row)
    kept = {name: value for name, value in filters.items() if name != "max_candidates"}
    allowed = support(row, temperature, int(kept.get("top_k", 0)), kept.get("top_p", 1.0), kept.get("min_p", 0.0))
    drawn = draw(subject, torch.tensor(row).expand(3000, -1).contiguous(), temperature, seed=seed, **filters)
    assert set(drawn) == allowed


@pytest.mark.level("smoke")
def test_top_k_keeps_exactly_k_of_equal_logits(subject: Subject) -> None:
    assert set(draw(subject, torch.zeros(2000, 40), top_k=6)) == set(range(6))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("filters", [{}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.2}], ids=shown)
def test_frequencies_are_those_of_the_softmax(
    subject: Subject, seed: int, filters: dict[str, Any], temperature: float
) -> None:
    """Pearson's chi-square over 20,000 draws, at a level that a true sampler misses once in millions of runs."""
    generator = random.Random(seed + 1)
    row = [round(generator.gauss(0.0, 1.0), 3) for _ in range(48)]
    kept = sorted(
        support(row, temperature, int(filters.get("top_k", 0)), filters.get("top_p", 1.0), filters.get("min_p", 0.0))
    )
    probabilities = [math.exp(x) for x in log_softmax([row[token] / temperature for token in kept])]
    drawn = draw(subject, torch.tensor(row).expand(20_000, -1).contiguous(), temperature, seed=seed, **filters)
    counts = [drawn.count(token) for token in kept]
    assert sum(counts) == len(drawn), "a token was drawn that the filters remove"
    assert chi_square(counts, probabilities) < chi_square_limit(len(kept) - 1)


def test_positions_seeds_and_samples_are_independent_draws(subject: Subject) -> None:
    """Each of the three changes what is drawn: over 512 draws of 4,096 equal tokens few fall together by chance."""
    count, flat = 512, torch.zeros(512, 4096)
    zeros, counting = torch.zeros(count, dtype=torch.int64), torch.arange(count)
    for keys in ((counting, zeros, zeros), (zeros, counting, zeros), (zeros, zeros, counting)):
        given = moved((flat, torch.ones(count), None, None, None, *keys), subject.torch_device)
        tokens = subject.run(partial(subject.ops.sample_tokens, *given)).cpu()
        assert len(set(tokens.tolist())) > 400


@pytest.mark.level("smoke")
def test_random_numbers_are_philox_to_the_bit(subject: Subject) -> None:
    """Equal logits: the token is the one whose 32-bit word is largest. The tokens are stored, and so are the same on
    every backend."""
    seeds, samples, positions = (torch.tensor(column) for column in zip(*(one[:3] for one in DRAWS), strict=True))
    count = len(DRAWS)
    given = moved((torch.zeros(count, VOCABULARY), torch.ones(count)), subject.torch_device)
    keys = moved((seeds, samples, positions), subject.torch_device)
    got = subject.run(lambda: subject.ops.sample_tokens(*given, None, None, None, *keys)).cpu().tolist()
    assert got == [token for *_, token in DRAWS]


def float32(x: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", x))[0]
    return rounded


@pytest.mark.parametrize("seed64", SEEDS)
def test_the_noise_has_its_value(subject: Subject, seed64: int) -> None:
    """Two tokens are left, and the second wins from just that difference of logits on for which its noise makes up."""
    tokens, positions = (3, 901), [0, 1, 2, 99, 2**20, 2**31 - 1]
    logits = torch.full((2 * len(positions), 1000), -INF)
    expected = []
    for at, position in enumerate(positions):
        first, second = (float32(noise(seed64, 0, position, token)) for token in tokens)
        step = 1e-5 * (1 + abs(first - second))
        for row, margin in ((2 * at, -step), (2 * at + 1, step)):
            logits[row, tokens[0]], logits[row, tokens[1]] = 0.0, first - second + margin
            expected.append(tokens[margin > 0])
    at_positions = torch.tensor(positions).repeat_interleave(2)
    assert draw(subject, logits, seed=seed64, positions=at_positions) == expected


def test_a_row_is_drawn_as_if_it_were_alone(subject: Subject, seed: int) -> None:
    """Rows of different settings together, backwards and one by one."""
    generator = torch.Generator().manual_seed(seed)
    count, vocabulary = 12, 301
    logits = torch.randn(count, vocabulary, generator=generator)
    temperature = torch.tensor([0.0, 0.5, 1.0, 3.0] * 3)
    top_k = torch.tensor([0, 3, 40] * 4, dtype=torch.int32)
    top_p = torch.tensor([1.0, 0.4, 0.9, 0.99] * 3, dtype=torch.float64)
    min_p = torch.tensor([0.0, 0.0, 0.1] * 4)
    keys = (torch.arange(count) * 977, torch.arange(count) % 3, torch.arange(count) * 5)
    rows = (logits, temperature, top_k, top_p, min_p, *keys)

    def drawn(index: Tensor) -> list[int]:
        given: Any = moved(tuple(column[index] for column in rows), subject.torch_device)
        tokens: list[int] = subject.run(lambda: subject.ops.sample_tokens(*given)).cpu().tolist()
        return tokens

    together = drawn(torch.arange(count))
    assert drawn(torch.arange(count).flip(0)) == together[::-1]
    assert [drawn(torch.tensor([row]))[0] for row in range(count)] == together
    for row in range(count):
        if temperature[row] > 0:
            settings = (float(temperature[row]), int(top_k[row]), float(top_p[row]), float(min_p[row]))
            assert together[row] in support(logits[row].tolist(), *settings)


@pytest.mark.level("smoke")
@pytest.mark.parametrize("vocabulary", [1, 31, 32, 33, 500])
def test_a_mask_is_never_violated(subject: Subject, seed: int, vocabulary: int) -> None:
    """Bits beyond the vocabulary mean nothing; an allowed logit keeps its bits; nothing masked is ever drawn."""
    generator = torch.Generator().manual_seed(seed)
    rows, words = 64, -(-vocabulary // 32)
    mask = torch.randint(-(2**31), 2**31, (rows, words), generator=generator).to(torch.int32)
    mask[:, 0] |= 1
    mask[0], mask[1] = -1, 0
    logits = torch.randn(rows, vocabulary, generator=generator)
    given = moved((logits, mask), subject.torch_device)
    masked = subject.run(lambda: subject.ops.apply_token_mask(*given)).cpu()
    token = torch.arange(vocabulary)
    allowed = ((mask.long()[:, token // 32] >> (token % 32)) & 1).bool()
    assert torch.equal(masked, logits.masked_fill(~allowed, -INF))
    for temperature in (0.0, 1.0, 50.0):
        drawn = torch.tensor(draw(subject, masked, temperature))
        real = allowed.any(dim=1)
        assert bool(allowed[torch.arange(rows), drawn][real].all())


@pytest.mark.parametrize("vocabulary", [1, 7, 512, 20_011])
def test_logprobs_are_those_of_the_softmax(subject: Subject, seed: int, vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows, k = 5, min(20, vocabulary)
    logits = (torch.randn(rows, vocabulary, generator=generator) * 4).round(decimals=1)
    tokens = torch.randint(0, vocabulary, (rows,), generator=generator)
    given = moved((logits, tokens), subject.torch_device)
    chosen, rank, ids, values = (x.cpu() for x in subject.run(lambda: subject.ops.top_logprobs(*given, k)))
    for row, scores in enumerate(logits.tolist()):
        exact, token = log_softmax(scores), int(tokens[row])
        order = sorted(range(vocabulary), key=lambda t: (-scores[t], t))
        assert ids[row].tolist() == order[:k]
        assert int(rank[row]) == 1 + order.index(token)
        torch.testing.assert_close(
            torch.tensor([float(chosen[row]), *values[row].tolist()]),
            torch.tensor([exact[token], *(exact[t] for t in order[:k])]),
            atol=1e-4,
            rtol=1e-5,
        )


def test_penalties_count_what_was_seen(subject: Subject, seed: int) -> None:
    """Repetition sees prompt and answer, frequency and presence the answer alone."""
    generator = torch.Generator().manual_seed(seed)
    rows, vocabulary = 6, 40
    logits = torch.randn(rows, vocabulary, generator=generator) * 3
    seen = torch.rand(rows, vocabulary, generator=generator) < 0.3
    counts = torch.randint(-3, 4, (rows, vocabulary), generator=generator).clamp(min=0).to(torch.int32)
    settings = [(1.0, 0.0, 0.0), (1.5, 0.0, 0.0), (1.0, 0.7, 0.0), (1.0, 0.0, -0.4), (0.8, -1.0, 0.3), (2.0, 2.0, 2.0)]
    columns = tuple(torch.tensor(column) for column in zip(*settings, strict=True))
    given = moved((logits, seen, counts, *columns), subject.torch_device)
    got = subject.run(lambda: subject.ops.apply_penalties(*given)).cpu().tolist()
    for row, (repetition, presence, frequency) in enumerate(settings):
        for token in range(vocabulary):
            x, count = float(logits[row, token]), int(counts[row, token])
            if seen[row, token] or count:
                x = x / repetition if x > 0 else x * repetition
            assert got[row][token] == pytest.approx(x - frequency * count - presence * (count > 0), abs=1e-5)


def test_drafts_hold_up_to_the_first_that_differs(subject: Subject, seed: int) -> None:
    """Two-token vocabularies, so that runs of every length occur. Drafts beyond a row's number never count."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 2, (200, 6), generator=generator)
    drafts = torch.randint(0, 2, (200, 5), generator=generator)
    number = torch.randint(0, 6, (200,), generator=generator).to(torch.int32)
    drafts[:6], number[:6] = target[:6, :5], torch.arange(6)
    given = moved((target, drafts, number), subject.torch_device)
    got = subject.run(lambda: subject.ops.verify_drafts(*given)).cpu().tolist()
    for row, count in enumerate(got):
        accepted = 0
        while accepted < int(number[row]) and target[row, accepted] == drafts[row, accepted]:
            accepted += 1
        assert count == 1 + accepted
