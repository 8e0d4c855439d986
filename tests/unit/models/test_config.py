"""config.json: what is accepted, and the name of everything that is not."""

import copy

import pytest
from made_checkpoints import tiny_config
from released import released_config

from deepinfer_core.api.errors import CheckpointError
from deepinfer_core.models.deepseek_v41.parse import parse_config
from deepinfer_core.models.deepseek_v41.plan import CandidateRole, plan_layers


def with_text(**changes):
    config = tiny_config()
    config["text_config"].update(changes)
    return config


def without_text(*names):
    config = tiny_config()
    for name in names:
        del config["text_config"][name]
    return config


def fault_of(config):
    with pytest.raises(CheckpointError) as error:
        parse_config(config)
    return str(error.value)


def test_nested_and_flat_forms_are_the_same():
    nested = tiny_config()
    flat = {**nested, **nested["text_config"]}
    del flat["text_config"]
    assert parse_config(flat) == parse_config(nested)


def test_the_tiny_checkpoint():
    config = parse_config(tiny_config())
    assert config.hidden_size == 128
    assert config.compress_ratios == (0, 0, 2, 2, 2, 1, 1, 1)
    assert config.eos_token_ids == (1,)
    assert config.window_rows == 16 + 2 * 6
    assert config.history_rows == 3


FAULTS = [
    ({"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported: it must be 'silu'"),
    ({"scoring_func": "sigmoid"}, "scoring_func = 'sigmoid'"),
    ({"topk_method": "greedy"}, "topk_method = 'greedy'"),
    ({"norm_topk_prob": False}, "norm_topk_prob = False"),
    ({"norm_topk_prob": 1}, "norm_topk_prob = 1"),
    ({"n_shared_experts": 2}, "n_shared_experts = 2"),
    ({"num_key_value_heads": 4}, "num_key_value_heads = 4"),
    ({"tie_word_embeddings": True}, "tie_word_embeddings = True"),
    ({"attention_bias": True}, "attention_bias = True"),
    ({"gate_temp": 2.0}, "gate_temp = 2.0"),
    ({"hc_shifted": False}, "hc_shifted = False"),
    ({"hidden_size": 130}, "it must be a whole number from 32 to 2147483647 that 32 divides"),
    ({"hidden_size": "128"}, "hidden_size = '128'"),
    ({"hidden_size": True}, "hidden_size = True"),
    ({"moe_intermediate_size": 48}, "moe_intermediate_size = 48"),
    ({"head_dim": 80}, "head_dim = 80"),
    ({"q_lora_rank": 0}, "q_lora_rank = 0"),
    ({"index_head_dim": 16}, "index_head_dim = 16"),
    ({"engram_head_dim": 8}, "engram_head_dim = 8"),
    ({"qk_rope_head_dim": 7}, "qk_rope_head_dim = 7"),
    ({"qk_rope_head_dim": 96}, "qk_rope_head_dim and head_dim do not fit: 96 rotated of 64 numbers"),
    ({"qk_rope_head_dim": 64}, "qk_rope_head_dim and index_head_dim do not fit: 64 rotated of 32 numbers"),
    ({"o_groups": 3}, "num_attention_heads and o_groups do not fit: 3 groups of 4 heads"),
    ({"o_lora_rank": 24}, "o_lora_rank and o_groups do not fit"),
    ({"num_experts_per_tok": 9}, "num_experts_per_tok may not exceed n_routed_experts"),
    ({"dspark_num_experts_per_tok": 5}, "dspark_num_experts_per_tok may not exceed dspark_n_routed_experts"),
    ({"rms_norm_eps": 0}, "rms_norm_eps = 0"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan"),
    ({"swiglu_limit": None}, "swiglu_limit is missing"),
    ({"rope_scaling": None}, "rope_scaling is missing"),
    ({"rope_scaling": {}}, "rope_type is missing"),
    ({"rope_scaling": {"type": "dynamic"}}, "type = 'dynamic' is not supported"),
    ({"rope_scaling": "yarn"}, "rope_scaling = 'yarn' is not supported: it must be an object"),
    (
        {"rope_scaling": {"rope_type": "linear", "factor": 2}},
        "rope_type = 'linear' is not supported",
    ),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, "beta_fast is missing"),
    ({"compress_ratios": [0, 0, 2]}, "compress_ratios has 3 entries and the model 8 layers"),
    ({"compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 0, 2, 0]}, "gives the draft stages [0, 2, 0]"),
    ({"compress_ratios": [0, 0, 2, 2, 2, 1, 1, -1]}, "compress_ratios has [-1]: every entry must be from 0"),
    ({"compress_ratios": [0, 0, 2, 2, 1, 1, 1, 1]}, "layer 4 has ratio 1 and its KV source 2 has 2"),
    ({"compress_ratios": [0, 1, 2, 2, 2, 1, 1, 1]}, "layer 1 has compress_ratio 1 and no KV source at or before it"),
    ({"compress_ratios": [0, 0, 2, 2, 2, 1, 0, 1]}, "layer 6 is a KV or index source and must have a compress_ratio"),
    ({"kv_source_layer_ids": [5, 2]}, "each entry must be above the one before it"),
    ({"kv_source_layer_ids": [2, 5, 8]}, "kv_source_layer_ids has [8]: every entry must be from 0 to 7"),
    ({"kv_source_layer_ids": 2}, "kv_source_layer_ids = 2 is not supported: it must be a list"),
    ({"index_source_layer_ids": [2, 6]}, "layer 5 is a KV source and must be in index_source_layer_ids"),
    ({"index_k_source_layer_ids": [2]}, "index_k_source_layer_ids = [2]"),
    ({"candidate_source_layer_id": 3}, "candidate_source_layer_id = 3 must be in index_source_layer_ids"),
    ({"candidate_source_layer_id": 2}, "layer 5 has ratio 1 and cannot use the candidate blocks of layer 2"),
    ({"engram_layer_ids": [1, 8]}, "engram_layer_ids has [8]"),
    (
        {"engram_num_embeddings": [660, 865]},
        "engram_num_embeddings = [660, 865] is not what",
    ),
    ({"engram_vocab_size": 102}, "engram_num_embeddings = [660, 864] is not what"),
    (
        {"engram_pad_token_id": 512},
        "engram_pad_token_id = 512 is not supported",
    ),
    ({"dspark_target_layer_ids": []}, "dspark_target_layer_ids is empty"),
    ({"dspark_noise_token_id": -1}, "dspark_noise_token_id = -1"),
    ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
]


@pytest.mark.parametrize(("changes", "message"), FAULTS)
def test_an_unsupported_value_is_named(changes, message):
    assert message in fault_of(with_text(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_block_size": [128, 128]}, "weight_block_size = [128, 128] is not supported: it must be [32, 32]"),
        ({"scale_fmt": "float"}, "scale_fmt = 'float'"),
        ({"expert_dtype": "fp8"}, "expert_dtype = 'fp8'"),
        ({"quant_method": "awq"}, "quant_method = 'awq'"),
        ({"activation_scheme": "static"}, "activation_scheme = 'static'"),
    ],
)
def test_another_quantisation_is_named(changes, message):
    config = tiny_config()
    config["quantization_config"].update(changes)
    assert message in fault_of(config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eos_token_id": 512}, "eos_token_id = 512"),
        ({"eos_token_id": [1, "2"]}, "eos_token_id = [1, '2']"),
        ({"eos_token_id": None}, "eos_token_id is missing"),
        ({"image_token_id": 600}, "image_token_id = 600"),
    ],
)
def test_a_token_outside_the_vocabulary_is_named(changes, message):
    assert message in fault_of({**tiny_config(), **changes})


def test_every_fault_is_in_the_one_error():
    message = fault_of(with_text(hidden_act="gelu", q_lora_rank=7, compress_ratios=[1]))
    assert "3 faults" in message


def test_a_missing_field_comes_with_the_nearest_name_that_nobody_reads():
    config = with_text(hiden_size=128)
    del config["text_config"]["hidden_size"]
    assert "hidden_size is missing; did you mean 'hiden_size'?" in fault_of(config)
    assert fault_of(without_text("sliding_window")).count("did you mean") == 0


@pytest.mark.parametrize("name", sorted(tiny_config()["text_config"].keys() - {"model_type", "initializer_range"}))
def test_no_field_has_a_silent_default(name):
    assert f"{name} is missing" in fault_of(without_text(name))


def test_a_wrong_layer_count_is_not_blamed_on_the_layer_lists():
    assert "1 fault" in fault_of(with_text(num_hidden_layers="8"))


def test_quantisation_must_be_described():
    config = tiny_config()
    del config["quantization_config"]
    assert "quantization_config is missing" in fault_of(config)
    assert "expert_dtype is missing" in fault_of({**config, "quantization_config": {}})


def test_the_older_name_of_the_rope_type():
    config = tiny_config()
    scaling = config["text_config"]["rope_scaling"]
    scaling["type"] = scaling.pop("rope_type")
    assert parse_config(config) == parse_config(tiny_config())


def test_fields_of_absent_parts_are_not_needed():
    config = with_text(
        compress_ratios=[0] * 8,
        kv_source_layer_ids=[],
        index_source_layer_ids=[],
        candidate_source_layer_id=-1,
        engram_layer_ids=[],
        num_nextn_predict_layers=0,
    )
    text = config["text_config"]
    unneeded = ("index_n", "index_h", "index_t", "candidate_t", "candidate_b", "dspark_", "engram_", "rope_scaling")
    for name in [name for name in text if name.startswith(unneeded) and name != "engram_layer_ids"]:
        del text[name]
    del text["compress_rope_theta"]
    parsed = parse_config(config)
    assert (parsed.indexer, parsed.candidates, parsed.engram, parsed.draft, parsed.yarn) == (None,) * 5
    assert parsed.window_rows == 16 + 2
    assert plan_layers(parsed).boundary is None


@pytest.mark.parametrize("extra", [[], [0], [0, 0, 0]])
def test_ratios_beyond_the_layers_belong_to_draft_stages(extra):
    parsed = parse_config(with_text(compress_ratios=[0, 0, 2, 2, 2, 1, 1, 1, *extra]))
    assert parsed.compress_ratios == (0, 0, 2, 2, 2, 1, 1, 1)


def test_the_callers_config_is_left_alone():
    config = tiny_config()
    before = copy.deepcopy(config)
    parse_config(config)
    assert config == before


def test_the_plan_of_the_released_model():
    plan = plan_layers(parse_config(released_config()))
    assert plan.boundary == 20
    assert [layer.layer for layer in plan.kv_sources] == [2, 8, 14, 20]
    assert [layer.layer for layer in plan.layers if layer.decoder] == list(range(21, 40))
    sources = {layer.layer: (layer.kv_source, layer.index_source) for layer in plan.layers}
    assert sources[1] == (None, None)
    assert sources[7] == (2, 2)
    assert sources[19] == (14, 14)
    assert sources[23] == (20, 20)
    assert sources[39] == (20, 36)
    roles = {layer.layer: layer.candidates for layer in plan.layers if layer.candidates is not CandidateRole.NONE}
    assert roles == {20: CandidateRole.CHOOSE, **dict.fromkeys((24, 28, 32, 36), CandidateRole.OBEY)}
    assert {layer.layer: layer.engram for layer in plan.layers if layer.engram is not None} == {1: 0, 14: 1}


@pytest.mark.parametrize("value", [10**9 * 32, 10**400, float("inf"), True])
@pytest.mark.parametrize("name", ["hidden_size", "hc_mult", "n_routed_experts", "num_nextn_predict_layers"])
def test_an_absurd_size_is_refused(name, value):
    assert f"{name} = " in fault_of(with_text(**{name: value}))


@pytest.mark.parametrize("value", [10**400, 1e300, 1e-300, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["rms_norm_eps", "rope_theta", "swiglu_limit"])
def test_a_number_that_float32_does_not_hold_is_refused(name, value):
    message = fault_of(with_text(**{name: value}))
    assert f"{name} = " in message
    assert len(message) < 500


@pytest.mark.parametrize("name", ["beta_fast", "beta_slow", "factor", "original_max_position_embeddings"])
@pytest.mark.parametrize("value", [10**400, 1e308])
def test_an_absurd_stretch_of_the_context_is_refused(name, value):
    scaling = {**tiny_config()["text_config"]["rope_scaling"], name: value}
    assert f"{name} = " in fault_of(with_text(rope_scaling=scaling))
