"""A large language model on one GPU: what the commands take beside the plain way, in seconds and in memory.

Run with: python benchmarks/large.py make --folder FOLDER [--text FILE] [--tokenizer FOLDER] [--tiny]
          python benchmarks/large.py rows --folder FOLDER [--only evaluate heal ..] [--output FILE]
          python benchmarks/large.py profile --folder FOLDER [--what plain heal] [--steps 8]
          python benchmarks/large.py table --folder FOLDER

`make` writes a random Llama of 6.07 billion parameters in bfloat16 (32 blocks of 4,096, in shards of 4 GB), and texts:
of a file with one text per line, or sentences put together from `pydocs`. `--tiny` makes one that a CPU runs, by the
same code. `rows` measures them: every command and every plain way runs in a process of its own, from its start to its
end, which notes its own peaks. Each row is kept in FOLDER/results.json as soon as it ends, beside those of earlier
calls, so that a machine that is lent for minutes does some at a time; a row that fails says so and the others run. No
row begins after `--most` seconds. `profile` shows where the time of a training step goes and what it keeps, in peft's
plain loop and in `heal`; `--what command -- evaluate ..` runs any command under Python's profiler. `table` prints the
results as Markdown.

Rows that end in `-small` are run while a second process holds all but `--gigabytes` of the GPU, as on a smaller card.
A command may refuse there, in a sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from memory import Watch

HERE = Path(__file__).parent
MODEL, RESULTS = "model", "results.json"
Values = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """The model, and how much of everything is measured."""

    config: dict[str, int]
    without: str
    blocks: int  # that `advise` is to leave
    evaluated: int  # windows
    advised: tuple[int, int]
    window: int  # tokens
    steps: int
    batch: int
    length: int  # tokens of a row that is learned from
    sentences: tuple[int, ...]
    rank: int = 16


LARGE = Size(
    {
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 49_152,
    },
    *("20-27", 28, 96, (46, 99), 1024, 200, 16, 512, (30_000, 100_000)),
)
TINY = Size(
    {
        "hidden_size": 64,
        "intermediate_size": 172,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1,
    },
    *("5-6", 7, 24, (22, 30), 32, 6, 4, 32, (200,)),
)


class Setting:
    """The folder with the model and the texts, and where they run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.folder = Path(options.folder).absolute()
        self.options = options
        made = self.folder / "made.json"
        self.made = json.loads(made.read_text(encoding="utf-8")) if made.is_file() else {}
        self.size = TINY if self.made.get("tiny", getattr(options, "tiny", False)) else LARGE
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def model(self) -> Path:
        return self.folder / MODEL

    def text(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    @property
    def plain_dtype(self) -> torch.dtype:
        """What the commands open the model in if they are not told."""
        return torch.float32 if self.size is TINY else torch.bfloat16

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


# The model and its texts


def make(setting: Setting) -> None:
    """Write the model and the texts."""
    from scale import sentences
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    import layerscope as ls

    options, size = setting.options, setting.size
    source = options.tokenizer
    tokenizer = ls.load("garden:gpt2-s0").tokenizer if source is None else AutoTokenizer.from_pretrained(source)
    sizes = {**size.config, "vocab_size": max(size.config["vocab_size"], len(tokenizer))}
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    config = AutoConfig.for_model("llama", **sizes, **special, max_position_embeddings=4096, tie_word_embeddings=False)
    torch.manual_seed(0)
    started = time.perf_counter()
    with setting.device:  # drawing six billion numbers takes minutes on a CPU
        network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    shutil.rmtree(setting.model, ignore_errors=True)
    (setting.folder / RESULTS).unlink(missing_ok=True)  # they are of another model
    network.save_pretrained(setting.model, max_shard_size="4GB")
    tokenizer.save_pretrained(setting.model)
    count = sum(parameter.numel() for parameter in network.parameters())
    print(f"{count:,} parameters, made and written in {time.perf_counter() - started:.1f} s", flush=True)
    lines = sentences(options.text)
    wanted = {f"windows-{n}": n * size.window for n in (size.evaluated, *size.advised)}
    wanted["learned"] = int(1.25 * size.steps * size.batch * size.length)
    for name, tokens in wanted.items():
        found = 0
        with setting.text(name).open("w", encoding="utf-8") as file:
            while found < tokens - size.window // 2:
                line = next(lines)
                file.write(line + "\n")
                found += len(tokenizer(line + "\n").input_ids)
    with setting.text("sentences").open("w", encoding="utf-8") as file:
        written = 0
        while written < max(size.sentences):
            for sentence in re.split(r"(?<=[.!?]) +", next(lines)):
                if 20 < len(sentence) < 400:
                    file.write(sentence + "\n")
                    written += 1
    made = {"tiny": size is TINY, "parameters": count, "bytes": tree_bytes(setting.model)}
    (setting.folder / "made.json").write_text(json.dumps(made), encoding="utf-8")


def tree_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# Processes that note what they take


@contextmanager
def noted(report: Path, profiled: bool = False) -> Iterator[Values]:
    """Write what the process has taken since its start when the block ends, however it ends."""
    import cProfile

    import psutil

    values: Values = {}
    profile = cProfile.Profile() if profiled else None
    watch = Watch(every=0.1)
    try:
        with watch:
            if profile is not None:
                profile.enable()
            yield values
    finally:
        if profile is not None:
            profile.disable()
            profile.dump_stats(report.with_suffix(".profile"))
        values["seconds"] = time.time() - psutil.Process().create_time()
        values["host peak GB"] = watch.peak / 1e9
        if torch.cuda.is_available():
            values["GPU peak GB"] = torch.cuda.max_memory_allocated() / 1e9
            values["GPU reserved GB"] = torch.cuda.max_memory_reserved() / 1e9
        report.write_text(json.dumps(values), encoding="utf-8")


def child_command(options: argparse.Namespace) -> None:
    """Run a command of layerscope in this process."""
    with noted(Path(options.report), options.profiled):
        from layerscope.__main__ import main as program

        sys.argv = ["layerscope", *options.words]
        program()


def child_plain(options: argparse.Namespace) -> None:
    """Run one of the plain ways in this process."""
    with noted(Path(options.report)) as values:
        PLAIN[options.way](Setting(options), values)


def process(words: list[str], report: Path, seconds: float, home: Path) -> Values:
    """What a process of this program noted, with how it ended and the last that it said."""
    report.unlink(missing_ok=True)
    environment = {**os.environ, "LAYERSCOPE_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(Path(__file__).absolute()), *words]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
    ):
        try:
            code = subprocess.run(command, stdout=out, stderr=errors, env=environment, timeout=seconds, check=False)
            values: Values = {"exit code": code.returncode}
        except subprocess.TimeoutExpired:
            values = {"exit code": None, "ended": f"after {seconds:.0f} s, by this benchmark"}
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read())
    values["output"], values["messages"] = texts
    if report.is_file():
        values |= json.loads(report.read_text(encoding="utf-8"))
    return values


def command(setting: Setting, *words: Any) -> Values:
    """What a command took; raises RuntimeError where it ended in an error."""
    values = attempted(setting, *words)
    if values["exit code"] not in (0, 3):  # 3: done, and the target is not met
        raise RuntimeError(f"exit code {values['exit code']}: {ending(values)}")
    return values


def attempted(setting: Setting, *words: Any) -> Values:
    """What a command took, however it ended."""
    given = [] if setting.options.dtype is None else ["--dtype", setting.options.dtype]
    report = setting.folder / "report.json"
    words = ("child", "--report", report, "--", *words, *given)
    return process(list(map(str, words)), report, setting.options.limit, setting.folder / "home")


def plain(setting: Setting, way: str) -> Values:
    """What a plain way took."""
    report = setting.folder / "report.json"
    words = ["plain", "--report", str(report), "--folder", str(setting.folder), "--way", way]
    values = process(words, report, setting.options.limit, setting.folder / "home")
    if values["exit code"]:
        raise RuntimeError(f"the plain way ended with {values['exit code']}: {ending(values)}")
    return {name: value for name, value in values.items() if name not in ("output", "messages", "exit code")}


def ending(values: Values) -> str:
    """The last that a process said, in one line."""
    said = values["messages"].strip() or values["output"].strip()
    return " ".join(said.split())[-1000:] + values.get("ended", "")


# The plain ways


def opened_plainly(setting: Setting, values: Values) -> Any:
    """The model by transformers, on the device."""
    started = time.perf_counter()
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(setting.model, dtype=setting.plain_dtype).eval().to(setting.device)
    setting.synchronize()
    values["opening, s"] = time.perf_counter() - started
    return network


def windows_of(setting: Setting, name: str, length: int) -> torch.Tensor:
    """(windows, length) the tokens of a text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(setting.model)
    lines = setting.text(name).read_text(encoding="utf-8").splitlines(keepends=True)
    ids = [token for found in tokenizer(lines, add_special_tokens=False).input_ids for token in found]
    return torch.tensor(ids[: len(ids) // length * length]).view(-1, length)


def plain_forward(setting: Setting, values: Values) -> None:
    """Seconds of opening, and of the forward over each of the texts, its loss over all logits of a batch."""
    network, size = opened_plainly(setting, values), setting.size
    for count in (size.evaluated, *size.advised):
        windows = windows_of(setting, f"windows-{count}", size.window)
        with torch.inference_mode():
            for turn in range(2):  # the first time warms up, over one batch
                setting.synchronize()
                started = time.perf_counter()
                for batch in windows.split(16)[: None if turn else 1]:
                    ids = batch.to(setting.device)
                    network(ids, labels=ids, use_cache=False)
                setting.synchronize()
        values[f"forward of {count} windows, s"] = (time.perf_counter() - started) * count / max(len(windows), 1)


class Rows(torch.utils.data.Dataset):
    """Token ids, as a plain loop gives them to the Trainer."""

    def __init__(self, ids: torch.Tensor) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[k], "attention_mask": torch.ones_like(self.ids[k]), "labels": self.ids[k]}


def removed(size: Size) -> list[int]:
    first, last = map(int, size.without.split("-"))
    return list(range(first, last + 1))


def plain_trainer(setting: Setting, values: Values, folder: str, steps: int) -> Any:
    """peft's LoRA of every projection and transformers' Trainer, around the model without some of its blocks."""
    from peft import LoraConfig, get_peft_model
    from transformers import Trainer, TrainingArguments

    size, network = setting.size, opened_plainly(setting, values)
    blocks = network.model.layers
    kept = [block for number, block in enumerate(blocks, 1) if number not in removed(size)]
    network.model.layers = torch.nn.ModuleList(kept)
    for number, block in enumerate(kept):
        block.self_attn.layer_idx = number
    network.config.num_hidden_layers = len(kept)
    network.config.use_cache = False
    del blocks
    torch.manual_seed(0)
    adapted = get_peft_model(network, LoraConfig(r=size.rank, lora_alpha=2 * size.rank, target_modules="all-linear"))
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=size.batch,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        bf16=setting.device.type == "cuda",
        use_cpu=setting.device.type == "cpu",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    return Trainer(model=adapted, args=arguments, train_dataset=Rows(windows_of(setting, "learned", size.length)))


def plain_heal(setting: Setting, values: Values) -> None:
    """Seconds per step, and of merging and writing what was trained."""
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        trainer = plain_trainer(setting, values, folder, setting.size.steps)
        setting.synchronize()
        started = time.perf_counter()
        trainer.train()
        setting.synchronize()
        values["seconds per step"] = (time.perf_counter() - started) / setting.size.steps
        if setting.device.type == "cuda":
            values["training peak GB"] = torch.cuda.max_memory_allocated() / 1e9
        started = time.perf_counter()
        trainer.model.merge_and_unload().save_pretrained(Path(folder) / "merged", max_shard_size="4GB")
        values["saving, s"] = time.perf_counter() - started


PLAIN: dict[str, Callable[[Setting, Values], None]] = {"forward": plain_forward, "heal": plain_heal}


# The rows


def forward(setting: Setting) -> Values:
    return plain(setting, "forward")


def known(setting: Setting, row: str) -> Values:
    """The values of a row, run now if no call before has run it."""
    results = read_results(setting)
    if "failed" in results.get(row, {"failed": ""}):
        keep(setting, row, ROWS[row](setting))
    return dict(read_results(setting)[row])


def base_seconds(setting: Setting) -> float:
    """Seconds that Python, its imports and opening the model take in the plain way."""
    values = known(setting, "forward")
    forwards = [value for name, value in values.items() if name.startswith("forward of")]
    return float(values["seconds"] - sum(forwards))


def evaluate(setting: Setting) -> Values:
    size = setting.size
    text = setting.text(f"windows-{size.evaluated}")
    taken = command(setting, "evaluate", setting.model, "--task", text, "--max-length", size.window, "--format", "json")
    once = known(setting, "forward")[f"forward of {size.evaluated} windows, s"]
    return {
        **figures(taken),
        "over start + opening + 1.1 forwards": taken["seconds"] / (base_seconds(setting) + 1.1 * once),
    }


def advise(setting: Setting, which: int = 0) -> Values:
    count = setting.size.advised[which]
    text = setting.text(f"windows-{count}")
    words = ("--blocks", setting.size.blocks, "--max-length", setting.size.window)
    taken = command(setting, "advise", setting.model, "--task", text, *words)
    said = said_effort(taken["messages"])
    once = known(setting, "forward")[f"forward of {count} windows, s"]
    values = {**figures(taken), **said}
    if "forwards" in said:
        values["over start + opening + forwards"] = taken["seconds"] / (base_seconds(setting) + said["forwards"] * once)
    if said.get("said, s"):
        values["what it said / seconds"] = said["said, s"] / taken["seconds"]
    return values


def said_effort(messages: str) -> Values:
    """How many forwards `advise` says that it needs, and how many seconds."""
    text = " ".join(messages.split())
    values: Values = {}
    if found := re.search(r"([\d.,]+) times what the whole model takes", text):
        values["forwards"] = float(found[1].replace(",", ""))
    if found := re.search(r"about ([\d.,]+) (s|seconds?|minutes?|hours?) (?:here|in all|on)", text):
        factor = {"s": 1, "m": 60, "h": 3600}[found[2][0]]
        values["said, s"] = float(found[1].replace(",", "")) * factor
    return values


def models(setting: Setting) -> Values:
    taken = command(setting, "models", setting.model)
    most = taken.get("GPU peak GB", taken["host peak GB"])
    return {**figures(taken), "most memory / file": max(most, taken["host peak GB"]) * 1e9 / setting.made["bytes"]}


def skip(setting: Setting) -> Values:
    out, copied = setting.folder / "smaller", setting.folder / "copied"
    for folder in (out, copied):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        started = time.perf_counter()
        subprocess.run(["cp", "-r", str(setting.model), str(copied)], check=True)
        copying = time.perf_counter() - started
        shutil.rmtree(copied)
        taken = command(setting, "skip", setting.model, "--blocks", setting.size.without, "--save", out)
        return {**figures(taken), "cp -r, s": copying, "over cp -r": taken["seconds"] / copying}
    finally:
        for folder in (out, copied):
            shutil.rmtree(folder, ignore_errors=True)


def heal_words(setting: Setting) -> list[Any]:
    size = setting.size
    words = ["heal", setting.model, "--without", size.without, "--task", setting.text("learned")]
    words += ["--steps", size.steps, "--batch", size.batch, "--max-length", size.length, "--size", size.rank]
    return words + (["--validation-limit", 4] if size is TINY else [])


def heal(setting: Setting) -> Values:
    """The command and the plain loop, in one run."""
    home = setting.folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    values: Values = {f"plain: {name}": value for name, value in plain(setting, "heal").items()}
    keep(setting, "heal", values)
    taken = command(setting, *heal_words(setting), "--verbose")
    training = json.loads(next(home.rglob("training.json")).read_text(encoding="utf-8"))
    each = training["seconds"] / training["steps"]
    values |= {
        **figures(taken),
        "seconds per step": each,
        "beside the training, s": taken["seconds"] - training["seconds"],
        "steps": training["steps"],
        "scores": training["scores"],
        "seconds per step / plain": each / values["plain: seconds per step"],
    }
    if "GPU peak GB" in taken:
        values["GPU peak / plain"] = taken["GPU peak GB"] / values["plain: training peak GB"]
    values["log"] = [line for line in taken["messages"].splitlines() if " s" in line][-12:]
    shutil.rmtree(home, ignore_errors=True)
    return values


def comparison(setting: Setting) -> Values:
    """CKA over mean-pooled states of a BERT-large in bfloat16, over a bare forward: scale.py."""
    values: Values = {}
    for count in setting.size.sentences:
        out = setting.folder / "scale.json"
        words = ["--device", setting.device.type, "--sentences", count, "--texts", setting.text("sentences")]
        words += ["--only", "bert-large-bfloat16", "--output", out]
        done = subprocess.run(
            [sys.executable, str(HERE / "scale.py"), *map(str, words)],
            capture_output=True,
            text=True,
            timeout=setting.options.limit,
            check=False,
        )
        found = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
        found.pop("device", None)
        if not found:
            raise RuntimeError(done.stderr[-1000:])
        out.unlink()
        values |= {f"{count:,} sentences: {name}": value for row in found.values() for name, value in row.items()}
        keep(setting, "comparison", values)
    return values


def figures(values: Values) -> Values:
    return {name: value for name, value in values.items() if name not in ("output", "messages", "exit code")}


HOLD = """
import sys, torch
left, held, step = float(sys.argv[1]) * 2**30, [], 1 << 30
while (more := torch.cuda.mem_get_info()[0] - left) > 1 << 21:
    held.append(torch.empty(int(min(step, more)) // (1 << 21) * (1 << 21), dtype=torch.uint8, device="cuda"))
print(torch.cuda.mem_get_info()[0] / 2**30, flush=True)
sys.stdin.read()
"""


@contextmanager
def small_gpu(gigabytes: float) -> Iterator[float]:
    """Hold all but so much of the GPU's memory in a second process; gives how much is left, as torch says it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(gigabytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        line = holder.stdout.readline()
        if not line:
            raise RuntimeError("the process that holds the GPU's memory ended")
        yield float(line)
    finally:
        holder.stdin.close()
        holder.wait(60)


def on_small_gpu(words: Callable[[Setting], list[Any]]) -> Callable[[Setting], Values]:
    """A row that is run with little free memory, and ends in a result or in a sentence."""

    def run(setting: Setting) -> Values:
        torch.cuda.empty_cache()
        try:
            with small_gpu(setting.options.gigabytes) as free:
                taken = attempted(setting, *words(setting))
            outcome = "a result" if taken["exit code"] in (0, 3) else "a sentence" if is_sentence(taken) else "an error"
            return {**figures(taken), "free GiB": free, "ended in": outcome, "said": ending(taken)[-400:]}
        finally:
            shutil.rmtree(setting.folder / "smaller", ignore_errors=True)
            shutil.rmtree(setting.folder / "home", ignore_errors=True)

    return run


def is_sentence(values: Values) -> bool:
    """Whether a command refused as it should: exit code 2, and no traceback."""
    return values["exit code"] == 2 and "Traceback" not in values["messages"]


def small_words(name: str) -> Callable[[Setting], list[Any]]:
    def words(setting: Setting) -> list[Any]:
        size = setting.size
        text = ["--task", setting.text(f"windows-{size.advised[0]}"), "--max-length", size.window]
        return {
            "evaluate": ["evaluate", setting.model, *text],
            "advise": ["advise", setting.model, "--blocks", size.blocks, *text],
            "skip": ["skip", setting.model, "--blocks", size.without, "--save", setting.folder / "smaller"],
            "heal": heal_words(setting),
        }[name]

    return words


ROWS: dict[str, Callable[[Setting], Values]] = {
    "forward": forward,
    "evaluate": evaluate,
    "models": models,
    "skip": skip,
    "advise": advise,
    "advise-more": lambda setting: advise(setting, 1),
    "heal": heal,
    "comparison": comparison,
    **{f"{name}-small": on_small_gpu(small_words(name)) for name in ("evaluate", "advise", "skip", "heal")},
}
GOALS = {  # row, value: at most
    ("evaluate", "over start + opening + 1.1 forwards"): 1.0,
    ("models", "seconds"): 12.0,
    ("models", "most memory / file"): 1.0,
    ("skip", "seconds"): 20.0,
    ("advise", "over start + opening + forwards"): 1.25,
    ("advise-more", "over start + opening + forwards"): 1.25,
    ("heal", "seconds per step / plain"): 1.03,
    ("heal", "beside the training, s"): 45.0,
    ("heal", "GPU peak / plain"): 56 / 54,
}


def read_results(setting: Setting) -> dict[str, Values]:
    path = setting.folder / RESULTS
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def keep(setting: Setting, row: str, values: Values) -> None:
    """Keep a row beside the others, also where `--output` says."""
    results = {**read_results(setting), row: values}
    results["machine"] = {
        "device": torch.cuda.get_device_name() if setting.device.type == "cuda" else "CPU",
        "platform": platform.machine(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        **setting.made,
    }
    text = json.dumps(results, indent=1) + "\n"
    (setting.folder / RESULTS).write_text(text, encoding="utf-8")
    if setting.options.output is not None:
        Path(setting.options.output).write_text(text, encoding="utf-8")


def rows(setting: Setting) -> None:
    began = time.perf_counter()
    for row in setting.options.only:
        if time.perf_counter() - began > setting.options.most:
            print(f"note: left out: {row}, as {setting.options.most:.0f} seconds are over", flush=True)
            continue
        if row.endswith("-small") and setting.device.type != "cuda":
            print(f"note: left out: {row}, as there is no GPU", flush=True)
            continue
        started = time.perf_counter()
        try:
            keep(setting, row, ROWS[row](setting))
        except Exception as error:  # the rows after it are worth as much without it
            before = read_results(setting).get(row, {})
            keep(setting, row, {**before, "failed": f"{type(error).__name__}: {error}"})
        print(f"{row}, {time.perf_counter() - started:.1f} s", flush=True)
        for name, value in read_results(setting)[row].items():
            print(f"  {name}: {f'{value:.4g}' if isinstance(value, float) else value}", flush=True)


def table(setting: Setting) -> None:
    """The results as Markdown."""
    results = read_results(setting)
    print(f"{results.pop('machine', {})}\n\n| row | what | figure | goal |\n| --- | --- | --- | --- |")
    for row, values in results.items():
        for name, value in values.items():
            goal = GOALS.get((row, name))
            shown = f"{value:.3g}" if isinstance(value, float) else str(value).replace("|", "/")
            print(f"| {row} | {name} | {shown} | {'' if goal is None else f'{goal:.3g}'} |")


# Where the time of a step goes


@contextmanager
def watched_steps(setting: Setting, name: str) -> Iterator[None]:
    """Profile the third to the sixth step of the Trainer that runs in the block, and print what each step keeps."""
    from torch.profiler import ProfilerActivity, profile
    from transformers import Trainer

    cuda = setting.device.type == "cuda"
    profiler = profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])])
    ordinary, seen = Trainer.training_step, []

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(seen) == 2:
            profiler.start()
        setting.synchronize()
        started = time.perf_counter()
        result = ordinary(self, *args, **kwargs)
        setting.synchronize()
        seen.append(time.perf_counter() - started)
        if cuda:
            gigabytes = [torch.cuda.max_memory_allocated() / 1e9, torch.cuda.memory_allocated() / 1e9]
            print(f"  step {len(seen)}: {seen[-1]:.3f} s, peak {gigabytes[0]:.1f} GB, after it {gigabytes[1]:.1f} GB")
        if len(seen) == 6:
            profiler.stop()
        return result

    Trainer.training_step = step
    try:
        print(f"{name}:", flush=True)
        yield
    finally:
        Trainer.training_step = ordinary
    if len(seen) >= 6:
        order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
        print(profiler.key_averages().table(sort_by=order, row_limit=30, max_name_column_width=60), flush=True)
    print(f"{name}: steps of {', '.join(f'{seconds:.3f}' for seconds in seen)} s, forward and backward\n", flush=True)


def profile_plain(setting: Setting, steps: int) -> None:
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
        trainer = plain_trainer(setting, {}, folder, steps)
        with watched_steps(setting, "plain"):
            trainer.train()


def profile_heal(setting: Setting, steps: int) -> None:
    import layerscope as ls
    from layerscope.tuning.heal import plan_healing

    size = setting.size
    given = {"dtype": setting.options.dtype} if setting.options.dtype else {}
    model = ls.load(str(setting.model), **given)
    options = {"steps": steps, "batch": size.batch, "max_length": size.length, "size": size.rank}
    options |= {"validation_limit": size.batch, "evaluate_every": steps}
    planned = plan_healing(model, f"without {size.without}", str(setting.text("learned")), **options)
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder, watched_steps(setting, "heal"):
        planned.job.train(Path(folder))


def profile(setting: Setting) -> None:
    options = setting.options
    for what in options.what:
        if what == "command":
            import pstats

            report = setting.folder / "report.json"
            words = ["child", "--profiled", "--report", str(report), "--", *options.words]
            taken = process(words, report, options.limit, setting.folder / "home")
            print(f"{ending(taken)}\n{figures(taken)}")
            pstats.Stats(str(report.with_suffix(".profile"))).sort_stats("cumulative").print_stats(60)
        else:  # each in a process of its own, so that neither finds the other's memory
            words = ["step", "--folder", str(setting.folder), "--what", what, "--steps", str(options.steps)]
            words += [] if options.dtype is None else ["--dtype", options.dtype]
            subprocess.run([sys.executable, str(Path(__file__).absolute()), *words], check=False)


def step_of(setting: Setting) -> None:
    {"plain": profile_plain, "heal": profile_heal}[setting.options.what](setting, setting.options.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="action", required=True)

    def action(name: str, *, shown: bool = True, folder: bool = True) -> argparse.ArgumentParser:
        added = commands.add_parser(name, **({"help": ""} if shown else {}))
        if folder:
            added.add_argument("--folder", required=True, help="where the model, the texts and the results are")
        added.add_argument("--dtype", help="what the commands open the model in; their own choice if not given")
        added.add_argument("--limit", type=float, default=540.0, help="seconds after which a process is ended")
        added.add_argument("--output", help="a second file that gets the results")
        return added

    made = action("make")
    made.add_argument("--tiny", action="store_true", help="a model that a CPU runs")
    made.add_argument("--tokenizer", help="the folder of a tokenizer")
    made.add_argument("--text", help="a file with one text per line")
    measured = action("rows")
    measured.add_argument("--only", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    measured.add_argument("--most", type=float, default=400.0, help="seconds after which no further row begins")
    measured.add_argument("--gigabytes", type=float, default=24.0, help="free memory in rows that end in -small")
    profiled = action("profile")
    profiled.add_argument("--what", nargs="+", choices=("plain", "heal", "command"), default=["plain", "heal"])
    profiled.add_argument("--steps", type=int, default=8)
    profiled.add_argument("words", nargs="*", help="with --what command: the command, after --")
    action("table")
    child = action("child", shown=False, folder=False)
    child.add_argument("--report", required=True)
    child.add_argument("--profiled", action="store_true")
    child.add_argument("words", nargs="*")
    way = action("plain", shown=False)
    way.add_argument("--report", required=True)
    way.add_argument("--way", choices=tuple(PLAIN), required=True)
    step = action("step", shown=False)
    step.add_argument("--what", choices=("plain", "heal"), required=True)
    step.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    if options.action == "child":
        child_command(options)
    elif options.action == "plain":
        child_plain(options)
    else:
        actions = {"make": make, "rows": rows, "profile": profile, "table": table, "step": step_of}
        actions[options.action](Setting(options))


if __name__ == "__main__":
    main()
