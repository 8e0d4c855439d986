"""Batch runs against a stand-in model."""

import json

import made_tokenizers
from fake_llm import FakeLLM

from deepinfer_core.api.errors import GenerationError
from deepinfer_core.api.outputs import RequestOutput
from deepinfer_core.batchio.manifest import manifest_path
from deepinfer_core.batchio.options import BatchOptions
from deepinfer_core.batchio.runner import run_batch
from deepinfer_core.batchio.writer import side_path
from deepinfer_core.observe.progress import NoProgress

TOKENIZER = made_tokenizers.byte_level()


class Bench:
    """One input and output file, and runs from the one into the other."""

    def __init__(self, folder):
        self.source = folder / "in.jsonl"
        self.target = folder / "out.jsonl"
        self.llms = []

    def give(self, *lines):
        """Write the input: objects become JSON lines, bytes stay as they are."""
        data = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        self.source.write_bytes(b"".join(line + b"\n" for line in data))

    def run(self, llm=None, progress=None, **options):
        llm = llm or FakeLLM(TOKENIZER)

        def engine():
            self.llms.append(llm)
            return llm

        return run_batch(
            self.source, self.target, engine, BatchOptions(model="fake", **options), progress or NoProgress()
        )

    def records(self):
        return [json.loads(line) for line in self.target.read_bytes().splitlines()]

    def records_but_created(self):
        """Without the time at which their run began."""
        records = self.records()
        for record in records:
            if record["response"]:
                del record["response"]["body"]["created"]
        return records

    def answers(self):
        """custom_id -> the first answer's text, or the error's code."""
        return {record["custom_id"]: outcome(record) for record in self.records()}

    def snapshot(self):
        """What a run left: file -> content."""
        paths = (self.target, side_path(self.target), manifest_path(self.target))
        return {path: path.read_bytes() for path in paths if path.exists()}

    def restore(self, snapshot):
        for path in self.target.parent.glob(f"{self.target.name}*"):
            path.unlink()
        for path, content in snapshot.items():
            path.write_bytes(content)


class FailingLLM(FakeLLM):
    """Requests with these prompts fail."""

    def __init__(self, *failing, **options):
        super().__init__(TOKENIZER, **options)
        self._failing = failing

    def _answer(self, request):
        if request.prompt in self._failing:
            error = GenerationError("its logits were not numbers")
            return RequestOutput(request.request_id, request.prompt, (1,), error=error)
        return super()._answer(request)


def outcome(record):
    if record["error"] is not None:
        return record["error"]["code"]
    choice = record["response"]["body"]["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def prompts(count):
    return [{"custom_id": f"r{index}", "prompt": f"prompt {index}"} for index in range(count)]
