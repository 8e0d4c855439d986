"""The examples that `./build.sh demo` answers."""

from pathlib import Path

from deepinfer_core.batchio.entry import Entry, Rejected
from deepinfer_core.batchio.reader import InputFile
from deepinfer_core.text.chat import Conversation

EXAMPLES = Path(__file__).parents[3] / "examples" / "prompts.jsonl"


def entries():
    with InputFile(EXAMPLES, {}) as file:
        file.scan()
        return list(file.entries(lambda line: True))


def test_there_are_many_and_one_is_bad():
    found = entries()
    assert len(found) >= 30
    assert [entry.line for entry in found if isinstance(entry, Rejected)] == [21]


def test_they_are_of_all_kinds():
    good = [entry for entry in entries() if isinstance(entry, Entry)]
    assert {type(entry.prompt) for entry in good} == {str, tuple, Conversation}
    params = [entry.params for entry in good]
    assert any(one.greedy for one in params)
    assert any(one.n == 3 for one in params)
    for name in ("stop", "seed", "top_k", "min_p", "logprobs", "logit_bias", "bad_words", "allowed_token_ids"):
        assert any(getattr(one, name) for one in params), name


def test_one_prompt_is_too_long_for_the_demo_model():
    assert max(len(entry.prompt) for entry in entries() if isinstance(getattr(entry, "prompt", None), str)) > 30_000
