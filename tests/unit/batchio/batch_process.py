"""A batch run in a process of its own, for tests that kill it: INPUT OUTPUT ORDER."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import made_tokenizers  # noqa: E402
from fake_llm import FakeLLM  # noqa: E402

from deepinfer_core.batchio.options import BatchOptions  # noqa: E402
from deepinfer_core.batchio.runner import run_batch  # noqa: E402


class PrintedProgress:
    """A line of 1000 characters for every record, once it is in a file."""

    def start(self, total, done):
        pass

    def ready(self):
        pass

    def advance(self, tokens):
        print(f"{tokens:<999}", flush=True)


def main():
    source, target, order = sys.argv[1:]
    options = BatchOptions(model="fake", order=order, resume=True, seed=5)
    llm = FakeLLM(made_tokenizers.byte_level(), window=8)
    try:
        run_batch(Path(source), Path(target), lambda: llm, options, PrintedProgress())
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
