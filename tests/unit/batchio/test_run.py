"""A batch run: one record for every line that is not blank, whatever the lines and the engine do."""

import json
import re

import pytest
from batch_bench import TOKENIZER, outcome, prompts
from fake_llm import TOO_LONG, FakeLLM
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepinfer_core.api.errors import DeviceError, InputFileError
from deepinfer_core.batchio.manifest import manifest_path
from deepinfer_core.batchio.writer import side_path

BAD = [b"null", b"[1]", b"{", b"\xff\xfe", b'{"custom_id": "u", "prompt": 3}', b'{"custom_id": "v", "body": 1}']


@pytest.mark.parametrize("order", ["input", "completion"])
def test_every_line_is_answered(bench, order):
    bench.give(*prompts(20))
    summary = bench.run(order=order)
    assert set(bench.answers()) == {f"r{index}" for index in range(20)}
    assert (summary.requests, summary.succeeded, summary.failed, summary.resumed) == (20, 20, 0, 0)


def test_input_order_is_the_order_of_the_lines(bench):
    bench.give(*prompts(30))
    bench.run(order="input")
    assert [record["custom_id"] for record in bench.records()] == [f"r{index}" for index in range(30)]


def test_order_of_completion_is_the_engines(bench):
    bench.give(*prompts(30))
    bench.run(order="completion")
    names = [record["custom_id"] for record in bench.records()]
    assert names != sorted(names, key=lambda name: int(name[1:]))


def test_the_counts_of_the_summary(bench):
    bench.give(*prompts(2), {"custom_id": "long", "prompt": TOO_LONG}, b"null")
    summary = bench.run()
    usages = [record["response"]["body"]["usage"] for record in bench.records() if record["response"]]
    assert (summary.succeeded, summary.failed) == (2, 2)
    assert summary.completion_tokens == sum(usage["completion_tokens"] for usage in usages) > 0
    assert summary.prompt_tokens == sum(usage["prompt_tokens"] for usage in usages) > 0


def test_bad_lines_are_records_with_their_numbers(bench):
    bench.give(*prompts(1), b"", *BAD)
    bench.run()
    errors = [record["error"] for record in bench.records() if record["error"]]
    assert [error["line"] for error in errors] == [3, 4, 5, 6, 7, 8]
    assert {error["code"] for error in errors} == {"invalid_request"}
    assert [record["custom_id"] for record in bench.records()] == ["r0", None, None, None, None, "u", "v"]


def test_bad_lines_are_told_before_the_model_is_loaded(bench, caplog):
    class Loading(FakeLLM):
        def __enter__(self):
            told.extend(caplog.messages)
            return super().__enter__()

    told = []
    bench.give(*prompts(1), b"null", b"[1]")
    bench.run(Loading(TOKENIZER))
    assert told == [
        "2 of 3 lines are no requests and get error records; the first is line 2: "
        "the line is not a JSON object: it holds null"
    ]


def test_a_request_that_the_engine_refuses_fails_alone(bench):
    bench.give(*prompts(2), {"custom_id": "long", "prompt": TOO_LONG})
    bench.run()
    assert bench.answers()["long"] == "prompt_too_long"
    assert all(text.startswith("answer") for name, text in bench.answers().items() if name != "long")


def test_the_model_is_not_loaded_when_no_line_needs_it(bench):
    bench.give(*BAD)
    assert bench.run().failed == len(BAD)
    assert bench.llms == []


def test_an_empty_file_is_done(bench):
    bench.give()
    assert bench.run().requests == 0
    assert bench.target.read_bytes() == b""


def test_the_engine_is_closed(bench):
    bench.give(*prompts(1))
    bench.run()
    assert (bench.llms[0].entered, bench.llms[0].left) == (1, 1)


def test_requests_are_read_as_the_engine_takes_them(bench):
    bench.give(*prompts(50))
    llm = FakeLLM(TOKENIZER, window=3)
    bench.run(llm)
    assert llm.most_in_flight == 3


def test_a_custom_id_twice_is_refused_before_anything_runs(bench):
    bench.give(*prompts(2), b"", {"custom_id": "r1", "prompt": "x"})
    with pytest.raises(InputFileError, match="'r1' on lines 2 and 4"):
        bench.run()
    assert bench.llms == []
    assert not bench.target.exists()


def test_a_bad_line_keeps_its_name_from_others(bench):
    bench.give({"custom_id": "a", "prompt": 3}, {"custom_id": "a", "prompt": "x"})
    with pytest.raises(InputFileError, match="'a' on lines 1 and 2"):
        bench.run()


def test_chats_and_completions_and_many_answers(bench):
    messages = [{"role": "user", "content": "hello"}]
    bench.give(
        {"custom_id": "c", "messages": messages, "thinking": {"type": "disabled"}},
        {"custom_id": "n", "prompt": "p", "n": 3},
    )
    bench.run()
    chat, many = (record["response"]["body"] for record in bench.records())
    assert chat["choices"][0]["message"]["content"].startswith("answer")
    assert [choice["index"] for choice in many["choices"]] == [0, 1, 2]


def test_a_chat_without_a_tokenizer_is_an_error_record(bench):
    bench.give({"custom_id": "c", "messages": [{"role": "user", "content": "a"}]}, {"custom_id": "i", "prompt": [1]})
    bench.run(FakeLLM(None))
    assert bench.answers()["c"] == "unsupported"
    assert bench.answers()["i"].startswith("answer")


def test_names_of_all_kinds_come_back(bench):
    names = ["你好", "\ud83d", "a\u2028b", "\x00", 'quote"', "\\", "x" * 1000]
    bench.give(*({"custom_id": name, "prompt": name if name != "\ud83d" else "p"} for name in names))
    bench.run()
    assert [record["custom_id"] for record in bench.records()] == names


def test_what_a_request_carries_reaches_the_engine(bench):
    class Noting(FakeLLM):
        def _answer(self, request):
            asked[request.request_id] = request
            return super()._answer(request)

    asked = {}
    bench.give({"custom_id": "a", "prompt": "p", "cache_salt": "s"}, {"custom_id": "b", "prompt": [1, 2], "seed": 9})
    bench.run(Noting(TOKENIZER))
    assert (asked["1"].prompt, asked["1"].prompt_token_ids, asked["1"].cache_salt) == ("p", None, "s")
    assert (asked["2"].prompt, asked["2"].prompt_token_ids, asked["2"].cache_salt) == (None, (1, 2), None)
    assert asked["2"].params.seed == 9


def test_a_chat_that_cannot_fit_is_refused_unread(bench):
    bench.give({"custom_id": "c", "messages": [{"role": "user", "content": "x" * 200_000}]}, *prompts(1))
    bench.run()
    assert bench.answers()["c"] == "prompt_too_long"
    assert re.search("the prompt has 200... bytes", bench.records()[0]["error"]["message"])
    assert bench.answers()["r0"].startswith("answer")


def test_models_that_lines_name_are_told(bench):
    bench.give({"custom_id": "a", "prompt": "p", "model": "gpt"}, {"custom_id": "b", "prompt": "p", "model": "fake"})
    assert bench.run().models == ("gpt",)
    assert bench.records()[0]["response"]["body"]["model"] == "fake"


def test_defaults_reach_the_requests(bench):
    bench.give({"custom_id": "a", "prompt": "p"}, {"custom_id": "b", "prompt": "p", "n": 1})
    bench.run(defaults={"n": 2})
    assert [len(record["response"]["body"]["choices"]) for record in bench.records()] == [2, 1]


def test_progress_is_told_of_every_record(bench):
    class Told:
        seen = None

        def start(self, total, done):
            self.seen = [(total, done)]

        def ready(self):
            self.seen.append("ready")

        def advance(self, tokens):
            self.seen.append(tokens)

    bench.give(b"null", *prompts(1))
    told = Told()
    bench.run(progress=told)
    assert told.seen == [(2, 0), 0, "ready", len("answer 00000000")]


@pytest.mark.parametrize("leftover", ["out.jsonl", "out.jsonl.waiting"])
def test_records_that_are_there_are_never_lost_unasked(bench, leftover):
    bench.give(*prompts(1))
    held = bench.target.with_name(leftover)
    held.write_bytes(b"something\n")
    with pytest.raises(InputFileError, match="--resume, or start again with --overwrite"):
        bench.run()
    assert held.read_bytes() == b"something\n"


def test_overwrite_starts_again(bench):
    bench.give(*prompts(2))
    bench.target.write_bytes(b"something\n")
    side_path(bench.target).write_bytes(b"something\n")
    bench.run(overwrite=True)
    assert len(bench.records()) == 2
    assert not side_path(bench.target).exists()


def test_an_input_that_changes_meanwhile_is_noticed(bench):
    bench.give(*prompts(3))

    class Meddler(FakeLLM):
        def __enter__(self):
            bench.source.write_bytes(bench.source.read_bytes() + b'{"custom_id": "new", "prompt": "x"}\n')
            return self

    with pytest.raises(InputFileError, match="changed while"):
        bench.run(Meddler(TOKENIZER))


def test_a_dead_device_leaves_what_was_finished(bench):
    bench.give(*prompts(10))
    with pytest.raises(DeviceError):
        bench.run(FakeLLM(TOKENIZER, dies_after=6), order="completion")
    assert len(bench.records()) == 6
    assert manifest_path(bench.target).is_file()


line = st.one_of(
    st.just(b""),
    st.sampled_from(BAD[:4]),
    st.binary(max_size=12).filter(lambda raw: b"\n" not in raw),
    st.text(max_size=5).map(lambda text: json.dumps({"prompt": text}).encode()),
    st.sampled_from(
        [{"prompt": "a"}, {"prompt": TOO_LONG}, {"prompt": [1, 2]}, {"prompt": 3}, {"prompt": "a", "n": 2}]
    ),
)


@given(st.lists(line, max_size=12), st.sampled_from(["input", "completion"]), st.integers(1, 5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # new_bench gives fresh files each time
def test_every_line_that_is_not_blank_has_exactly_one_record(new_bench, lines, order, window):
    bench = new_bench()
    named = [{"custom_id": str(place), **one} if isinstance(one, dict) else one for place, one in enumerate(lines)]
    bench.give(*named)
    bench.run(FakeLLM(TOKENIZER, window, seed=window), order=order)
    raw = bench.source.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    owed = [number for number, one in enumerate(raw, 1) if one.strip()]
    given_lines = [int(record["id"].removeprefix("line-")) for record in bench.records()]
    assert (given_lines if order == "input" else sorted(given_lines)) == owed
    for record in bench.records():
        assert (record["response"] is None) != (record["error"] is None)
        assert outcome(record)
