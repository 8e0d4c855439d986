"""Each parameter between logits and draw, seen through what a greedy request answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampling_kit import GREEDY, Bench, answer

from deepinfer_core.api.params import SamplingParams
from deepinfer_core.interfaces.sampler import SampledRows
from deepinfer_core.sampling.plan import TokenMask
from deepinfer_core.sampling.request import pack_mask

LOGITS = [0.0, 5.0, 4.0, 3.0, 2.0, 1.0]  # in order: 1, 2, 3, 4, 5, 0


def greedy(**params: object) -> SamplingParams:
    return GREEDY.replace(**params)


def test_logit_bias_moves_the_choice() -> None:
    assert answer(LOGITS, 2, greedy(logit_bias={5: 4.5, 1: -1.0})) == [5, 5]


def test_allowed_ids_are_all_there_is() -> None:
    assert answer(LOGITS, 2, greedy(allowed_token_ids=[0, 4])) == [4, 4]


def test_a_bias_cannot_bring_back_what_is_not_allowed() -> None:
    assert answer(LOGITS, 1, greedy(allowed_token_ids=[0, 4], logit_bias={1: 100.0})) == [4]


class TestPenalties:
    def test_repetition_sees_the_prompt_in_the_first_step(self) -> None:
        assert answer(LOGITS, 1, greedy(repetition_penalty=4.0), prompt=[1, 2, 3]) == [4]

    def test_repetition_sees_the_answer(self) -> None:
        assert answer(LOGITS, 4, greedy(repetition_penalty=10.0), prompt=[0]) == [1, 2, 3, 4]

    @pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
    def test_presence_and_frequency_do_not_see_the_prompt(self, name: str) -> None:
        assert answer(LOGITS, 1, greedy(**{name: 2.0}), prompt=[1, 1, 1, 1]) == [1]

    def test_presence_counts_once(self) -> None:
        assert answer([0.0, 3.0, 1.5], 4, greedy(presence_penalty=1.0)) == [1, 1, 1, 1]

    def test_frequency_counts_every_time(self) -> None:
        assert answer([0.0, 3.0, 1.75], 5, greedy(frequency_penalty=0.5)) == [1, 1, 1, 2, 1]

    def test_a_resumed_request_goes_on_as_if_never_stopped(self) -> None:
        params = greedy(repetition_penalty=1.2, frequency_penalty=0.5, presence_penalty=0.3)
        whole = answer(LOGITS, 12, params, prompt=[2, 2])
        assert len(set(whole)) > 3
        for cut in (1, 5, 11):
            assert answer(LOGITS, 12 - cut, params, prompt=[2, 2], output=whole[:cut]) == whole[cut:]

    def test_a_slot_forgets_the_request_before(self) -> None:
        bench, params = Bench(6), greedy(repetition_penalty=10.0)
        bench.give(0, params, prompt=[1])
        assert bench.run(0, LOGITS, 3) == [2, 3, 4]
        bench.give(0, params, prompt=[2])
        assert bench.run(0, LOGITS, 2) == [1, 3]
        bench.give(0, GREEDY, prompt=[2])
        assert bench.run(0, LOGITS, 2) == [1, 1]

    def test_prompt_ids_beyond_the_vocabulary_are_not_counted(self) -> None:
        assert answer(LOGITS, 1, greedy(repetition_penalty=10.0), prompt=[1, 6, 900]) == [2]


class TestBadWords:
    def test_a_single_token_never_comes(self) -> None:
        assert answer(LOGITS, 3, bad_words=[(1,)]) == [2, 2, 2]

    def test_a_pair_is_banned_only_after_its_first_token(self) -> None:
        assert answer(LOGITS, 4, bad_words=[(1, 1)]) == [1, 2, 1, 2]

    def test_a_longer_word_needs_its_whole_prefix(self) -> None:
        assert answer(LOGITS, 7, bad_words=[(1, 1, 1)]) == [1, 1, 2, 1, 1, 2, 1]

    def test_the_longest_word(self) -> None:
        assert answer(LOGITS, 9, bad_words=[(1,) * 8]) == [1] * 7 + [2, 1]

    def test_prompt_tokens_do_not_begin_a_word(self) -> None:
        assert answer(LOGITS, 2, prompt=[0, 1], bad_words=[(1, 1)]) == [1, 2]
        assert answer(LOGITS, 3, prompt=[1, 1], bad_words=[(1, 1, 1)]) == [1, 1, 2]

    def test_a_resumed_request_remembers_its_last_tokens(self) -> None:
        assert answer(LOGITS, 2, output=[1], bad_words=[(1, 1)]) == [2, 1]

    def test_words_with_one_last_token_do_not_undo_each_other(self) -> None:
        for words in ([(2, 1), (3, 1)], [(3, 1), (2, 1)]):
            assert answer(LOGITS, 1, output=[2], bad_words=words) == [2]
            assert answer(LOGITS, 1, output=[3], bad_words=words) == [2]
            assert answer(LOGITS, 1, output=[4], bad_words=words) == [1]

    def test_each_row_looks_at_its_own_history(self) -> None:
        bench = Bench(6)
        for slot, output in ((5, [1]), (2, [3]), (7, [1])):
            bench.give(slot, GREEDY, output=output, bad_words=[(1, 1)])
        logits = torch.tensor(LOGITS).expand(3, 6)
        assert bench.step([2, 5, 7], logits).tokens[:, 0].tolist() == [1, 2, 2]
        assert bench.step([7, 2, 5], logits).tokens[:, 0].tolist() == [1, 2, 1]


class TestMinTokens:
    def test_no_stop_before_and_any_stop_after(self) -> None:
        params = greedy(min_tokens=4, logit_bias={1: 50.0, 2: 50.0, 5: 49.0})
        assert answer(LOGITS, 6, params, stop_token_ids=[1, 2, 5]) == [3, 3, 3, 3, 1, 1]

    def test_the_prompt_does_not_count(self) -> None:
        assert answer(LOGITS, 3, greedy(min_tokens=2), prompt=[0] * 50, stop_token_ids=[1]) == [2, 2, 1]

    def test_a_resumed_request_keeps_its_count(self) -> None:
        assert answer(LOGITS, 2, greedy(min_tokens=3), output=[2, 2], stop_token_ids=[1]) == [2, 1]

    def test_without_stops_nothing_is_banned(self) -> None:
        assert answer(LOGITS, 2, greedy(min_tokens=2), stop_token_ids=[]) == [1, 1]

    def test_rows_reach_their_minimum_apart(self) -> None:
        bench = Bench(6)
        bench.give(0, greedy(min_tokens=1), stop_token_ids=[1])
        bench.give(1, greedy(min_tokens=2), stop_token_ids=[1])
        logits = torch.tensor(LOGITS).expand(2, 6)
        assert [bench.step([0, 1], logits).tokens[:, 0].tolist() for _ in range(3)] == [[2, 2], [1, 2], [1, 1]]


class Favour:
    """A plugin's stage: lifts token 4, and remembers what it was shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[int], list[int], list[int]]] = []

    def apply(self, logits: torch.Tensor, rows: SampledRows) -> torch.Tensor:
        self.seen.append((rows.slot.tolist(), rows.position.tolist(), rows.generated.tolist()))
        return logits.index_fill(1, torch.tensor([4]), 99.0)


def test_a_plugin_stage_sees_only_rows_that_asked() -> None:
    favour = Favour()
    bench = Bench(6, processors={"favour": favour})
    bench.give(0, GREEDY)
    bench.give(1, GREEDY, prompt=[1, 2], output=[3], processors=["favour"])
    tokens = bench.step([0, 1], torch.tensor(LOGITS).expand(2, 6)).tokens[:, 0].tolist()
    assert tokens == [1, 4]
    assert favour.seen == [([1], [3], [1])]


def test_a_constraint_binds_its_rows_after_every_other_stage() -> None:
    bench = Bench(6, processors={"favour": Favour()})
    for slot in range(3):
        bench.give(slot, greedy(logit_bias={4: 50.0}), processors=["favour"])
    allowed = np.zeros((2, 6), bool)
    allowed[0, [0, 5]] = True
    allowed[1, [2, 3]] = True
    mask = TokenMask(torch.tensor([2, 0]), torch.from_numpy(np.stack([pack_mask(row) for row in allowed])))
    assert bench.step([0, 1, 2], torch.tensor(LOGITS).expand(3, 6), mask).tokens[:, 0].tolist() == [2, 4, 5]
