"""The backend answers a request. Everything else is asked by the conformance suite, which also lends the checkpoint."""

from deepinfer_conformance.tiny import data_folder
from deepinfer_core import LLM, SamplingParams


def test_a_request_is_answered() -> None:
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
    with LLM(str(data_folder() / "tiny_v41"), backend="mychip", max_length=64) as llm:
        (output,) = llm.generate([[5, 6, 7]], params)
        report = "\n".join(llm.report)
    assert output.error is None
    assert len(output.outputs[0].token_ids) == 4
    assert "backend mychip: asked for" in report
