"""The training scripts on their tiny shape: every stage runs, resumes, and ends in a folder that the engine accepts."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dense_v41 import DenseConfig, Quantisation, load_folder
from dense_v41.draft import DraftOutput

from deepinfer_core.models.deepseek_v41.factory import DeepseekV41Factory
from training import backbone, drafts
from training.acceptance import Places, acceptance, calibration_error, rounds
from training.answers import exact_share, json_score
from training.baseline import NGrams
from training.bits import bits_per_byte
from training.corpus import SEPARATOR, VALIDATION, by_kind, prompt_of, read_documents, rendered
from training.decode import Decoder, continue_prompts
from training.dense import IN_THE_LOOP, new_model, spec_for
from training.export import export
from training.fast import block_mask, flex_attend, grouped_experts, grouped_forward, sparse_attend
from training.optimiser import orthogonal, rate_at
from training.prepare import load_tokenizer
from training.shape import FULL, TINY, TINY_RUN, Phase
from training.tokens import Windows, encode

STORY = "The clockmaker looked at the wheels and the spring. She opened the shop, and number {} was there.\n"
JSON = (
    '<｜User｜>Give me a JSON object with keys age. Facts: age is {}.<｜Assistant｜>{{"age": {}}}<｜end▁of▁sentence｜>'
)
RUN = replace(
    TINY_RUN,
    tokens=3 * 8 * 64,
    phases=(Phase(0.7, 64, 8), Phase(0.3, 128, 4)),
    index_every=2,
    draft_steps=2,
    own_rows=4,
)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    texts = ["".join(STORY.format(i * j) for j in range(20)) for i in range(8)] + [JSON.format(i, i) for i in range(20)]
    for name, documents in (("text.txt.xz", texts), (VALIDATION, texts[-3:])):
        with lzma.open(folder / name, "wt", encoding="utf-8") as file:
            file.write(SEPARATOR.join(documents))
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory) -> Path:
    """A work folder after a run that was stopped at once and a run that took up; `drafted` in it has the stages too."""
    work = tmp_path_factory.mktemp("work")
    spec = replace(RUN, spec=replace(TINY, vocab_size=320))
    assert not backbone.run(spec, data, work, seconds=0)
    assert backbone.run(spec, data, work, seconds=600)
    tokenizer = load_tokenizer(data, work, spec)
    state = torch.load(work / backbone.STATE)
    assert state["done"] == 3
    export(work / "model", spec_for(spec.spec, tokenizer), tokenizer, state["model"])
    drafts.run(spec, data, work, work / "model", work / "drafted", seconds=600, until=0.5)
    assert torch.load(work / drafts.STATE)["step"] == 1
    drafts.run(spec, data, work, work / "model", work / "drafted", seconds=600)
    assert torch.load(work / drafts.STATE)["step"] == 2  # the recipe's
    return work


def test_the_folder_is_one_that_the_engine_accepts(trained):
    config = json.loads((trained / "drafted" / "config.json").read_text())
    info = DeepseekV41Factory().inspect(trained / "drafted", config)
    assert (info.vocab_size, info.max_drafts) == (320, 5)


def test_drafts_leave_the_backbone_alone(trained):
    before, after = (load_folder(trained / name).state_dict() for name in ("model", "drafted"))
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"mtp"}


def test_a_batch_depends_on_its_step_alone():
    stream = torch.arange(1000, dtype=torch.int16)
    one, other = Windows(stream, 10, 4), Windows(stream, 10, 4)
    assert torch.equal(one[30], other[30])
    assert torch.equal(one[2], other[2])
    seen = torch.cat([one[step][:, 0] for step in range(one.steps_per_epoch)])
    assert len(seen.unique()) == len(seen)


def test_a_token_at_a_time_gives_the_same_logits(trained):
    model = load_folder(trained / "model", Quantisation(activations=True), torch.float64).requires_grad_(False)
    ids = torch.randint(5, 320, (2, 40), generator=torch.Generator().manual_seed(1))
    decoder = Decoder(model, 2, 40)
    stepped = torch.stack([decoder.step(ids[:, at]) for at in range(40)], 1)
    assert (stepped - model(ids).logits).abs().max() < 1e-9


def test_continuations_keep_their_prompts(trained):
    model = load_folder(trained / "model").requires_grad_(False)
    rows = continue_prompts(model, [[0, 7, 9], [0, 40]], 8, torch.tensor([0.0, 1.0]), seed=5)
    assert rows[0, :3].tolist() == [0, 7, 9]
    assert rows[1, :2].tolist() == [0, 40]
    assert torch.equal(rows, continue_prompts(model, [[0, 7, 9], [0, 40]], 8, torch.tensor([0.0, 1.0]), seed=5))


def test_a_run_that_is_cut_short_leaves_the_rest_to_the_next(trained):
    model = load_folder(trained / "model", IN_THE_LOOP)
    recipe = replace(RUN, draft_steps=3)
    batches = drafts.Batches(recipe, torch.arange(400, dtype=torch.int16) % 300, torch.full((4, 64), 9))

    def steps(training, seconds, until=None):
        return sum(1 for _ in training.run(batches, seconds, until))

    training = drafts.DraftTraining(recipe, model)
    assert steps(training, seconds=1e-9) == 0
    assert training.share == 0
    assert steps(training, seconds=600) == 3
    assert steps(training, seconds=600) == 0
    squeezed = drafts.DraftTraining(recipe, model)
    assert steps(squeezed, seconds=1e-9, until=0.5) == 1
    assert (squeezed.step, squeezed.share) == (1, 0.5)


def test_rounds_begin_behind_what_the_one_before_accepted():
    accepted = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]]).bool()
    there = torch.tensor([[1, 1, 1]] * 5 + [[1, 1, 0], [1, 0, 0]]).bool()
    first, tokens = rounds(Places(accepted, there, accepted.float(), accepted.float()))
    assert first.int().tolist() == [[1, 1, 0], [0, 0, 0], [1, 1, 1]]  # at the places 0, 3 and 4
    assert tokens.sum() == 9
    first, tokens = rounds(Places(accepted[5:], there[5:], accepted[5:].float(), accepted[5:].float()))
    assert first.int().tolist() == [[1, 1, 0]]
    assert tokens.int().tolist() == [[1, 1, 0]]


def test_acceptance_of_drafts_that_are_the_backbone(trained, monkeypatch):
    """Drafts with the backbone's own distribution are all accepted, greedy and sampled, in rounds of full length."""
    model = load_folder(trained / "drafted", Quantisation(activations=True)).requires_grad_(False)
    ids = continue_prompts(model, [[0, 50, 51], [0, 50]], 32, torch.tensor([0.0, 0.0]))
    texts = [(ids[0, :3].tolist(), ids[0, 3:].tolist()), (ids[1, :2].tolist(), ids[1, 2:].tolist())]

    def perfect(taps, first, anchors, tokens):
        rows = next(r for r in seen if len(r) == len(taps))
        places = anchors[:, None] + 1 + torch.arange(5)
        logits = model.forward(rows).logits[:, places]
        return DraftOutput(logits.argmax(-1), logits, torch.full(logits.shape[:3], 20.0))

    seen = []
    hook = model.register_forward_pre_hook(lambda _, given: seen.insert(0, given[0]))
    monkeypatch.setattr(model, "draft", perfect)
    result = acceptance(model, texts, texts)
    hook.remove()
    for part in (result["greedy"], result["sampled"]):
        assert part["shares"] == [1.0] * 5
        assert part["length"] == 6
        assert part["rounds"] == 2 * -(-28 // 6)
    assert result["calibration"] == pytest.approx([0] * 5, abs=1e-5)


def test_bits_of_a_new_model_are_those_of_a_guess(data, tmp_path):
    """Logits of a new model are near a guess, so bits per token are near log2 of the vocabulary or a little above."""
    tokenizer = load_tokenizer(data, tmp_path, replace(RUN, spec=replace(TINY, vocab_size=320)))
    documents = read_documents(data / VALIDATION)
    model = new_model(spec_for(replace(TINY, vocab_size=320), tokenizer), tokenizer, torch.float32)
    tokens = sum(len(ids) - 1 for ids in encode(tokenizer, documents))
    guess = tokens * 8.32 / sum(len(document.encode()) for document in documents)
    assert guess < bits_per_byte(model.requires_grad_(False), tokenizer, documents) < 1.2 * guess


# --- the fast paths of the GPU, in their plain form ---------------------------------------------------------------


def test_sparse_attention_is_attention():
    config = DenseConfig.from_text_config(TINY.config()["text_config"])
    from dense_v41.attention import Projections

    generator = torch.Generator().manual_seed(0)
    layer = Projections(config, 0, IN_THE_LOOP).requires_grad_(False)
    layer.attn_sink.normal_(generator=generator)
    q = torch.randn(2, 256, 2, 32, generator=generator)
    keys = torch.randn(2, 384, 32, generator=generator)
    visible = (torch.rand(2, 256, 384, generator=generator) < 0.05) | torch.eye(256, 384, dtype=torch.bool)
    visible[:, :128, 128:] = False
    assert block_mask(visible).kv_num_blocks[:, 0, 0].tolist() == [1, 1]
    actual = sparse_attend(_uncompiled(flex_attend), layer.attn_sink, 32**-0.5, q, keys, visible)
    torch.testing.assert_close(actual, layer.attend(q, keys, visible), rtol=0, atol=1e-5)


def _uncompiled(function):
    def call(*arguments):
        with pytest.warns(UserWarning, match="without torch.compile"):
            return function(*arguments)

    return call


def test_grouped_experts_are_the_experts():
    from dense_v41.moe import MoE

    torch.manual_seed(0)
    config = DenseConfig.from_text_config(TINY.config()["text_config"])
    layer = MoE(config, 4, 2, IN_THE_LOOP)
    x = torch.randn(1, 60, 64).bfloat16().requires_grad_()
    weights = [x, layer.experts.w1, layer.experts.w2, layer.gate.weight]
    expected = layer(x)
    load = layer.load.clone()
    actual = grouped_forward(grouped_experts, layer, x)
    assert torch.equal(layer.load, load)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0.05)
    direction = torch.randn_like(expected)
    pairs = zip(
        torch.autograd.grad(actual, weights, direction), torch.autograd.grad(expected, weights, direction), strict=True
    )
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05 * float(theirs.abs().max()))


# --- the small parts ----------------------------------------------------------------------------------------------


def test_orthogonal_evens_singular_values():
    x = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(0))
    for matrix in (orthogonal(x), orthogonal(x.mT).mT):
        values = torch.linalg.svdvals(matrix)
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_the_rate_rises_stays_and_falls():
    rates = [rate_at(step, 100, 10, 0.4) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[10:60] == [1.0] * 50
    assert rates[60:] == sorted(rates[60:], reverse=True)
    assert rates[-1] == pytest.approx(1 / 40)


def test_kinds_and_prompts():
    documents = [JSON.format(3, 3), "a (noun): b.\nc (verb): d.\ne (noun): f.\ng (noun): h.", "Once upon a time."]
    kinds = by_kind(documents)
    assert (kinds["json"], kinds["glosses"], kinds["prose"]) == ([documents[0]], [documents[1]], [documents[2]])
    prompt, answer = prompt_of(documents[0])
    assert answer == '{"age": 3}'
    assert rendered(documents[0]).startswith(prompt + answer)


def test_scores_of_answers():
    pairs = [('{"a": 1, "b": 2}', '{"a": 1, "b": 3}'), ('{"a"', '{"a": 1}'), ('{"a": 1}', '{"a": 1}')]
    assert json_score(pairs) == {"answers": 3, "parsed": 2 / 3, "whole": 1 / 3, "facts": 0.5}
    assert exact_share([("so 3\nThe answer is 4.", "The answer is 4."), ("5", "6")]) == 0.5


def test_calibration_error_is_the_distance_of_predicted_and_observed():
    predicted = torch.tensor([0.9, 0.9, 0.1, 0.1])
    assert calibration_error(predicted, torch.tensor([1.0, 0.8, 0.0, 0.2])) == pytest.approx(0, abs=1e-6)
    assert calibration_error(predicted, torch.tensor([1.0, 1.0, 0.0, 0.0])) == pytest.approx(0.1, abs=1e-6)


def test_ngrams_learn_their_text():
    text = b"the cat sat on the mat and the cat sat on the hat. " * 50
    assert NGrams(text).bits(text) < 0.5
    assert NGrams(text).bits(bytes(range(256))) > 6


def test_the_full_recipe_has_every_part_of_the_architecture():
    spec = FULL.spec
    assert set(spec.compress_ratios[: spec.num_hidden_layers]) == {0, 1, 2}
    assert len(spec.kv_source_layer_ids) > 1
    assert len(spec.index_source_layer_ids) > len(spec.kv_source_layer_ids)
    assert spec.candidate_topk_blocks * spec.candidate_block_size < spec.max_position_embeddings
    assert spec.n_routed_experts >= 16
    assert spec.num_nextn_predict_layers == 3
    assert sum(phase.share for phase in FULL.phases) == pytest.approx(1)
