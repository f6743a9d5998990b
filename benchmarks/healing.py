"""Tokens per second of healing a language model, beside a plain peft + Trainer loop; what a teacher and epochs cost.

Run with: python benchmarks/healing.py --model FOLDER --text FILE [--without 13-19,27] [--steps 100] [--format json]

The plain loop is what one writes by hand: the same cut model, the same windows in batches of the same size, as many
steps, LoRA of the same rank on the same projections, transformers' Trainer with bfloat16, its loss over all logits at
once. Both are run once before anything is timed; then they take turns, and the fastest turn of each counts. "upper
half" trains the blocks of the upper half for four epochs on both sides; layerscope runs the lower half once. The plain
loop has no looks at held-out text and saves nothing; layerscope's time has one look and one checkpoint in it.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import layerscope as ls
from layerscope.tuning.heal import plan_healing
from layerscope.tuning.objectives.base import Distillation
from layerscope.tuning.strategy import Strategy

GOALS = {
    "LoRA / plain": 1.0,
    "upper half / plain": 1.2,
    "distilled LoRA, time": 1.9,
    "distilled finetune, time": 1.6,
}
EPOCHS = 4
_RATIOS = {  # of seconds
    "LoRA / plain": ("plain", "LoRA"),
    "upper half / plain": ("plain, upper half", "upper half"),
    "distilled LoRA, time": ("distilled LoRA", "LoRA"),
    "distilled finetune, time": ("distilled finetune", "finetune"),
}
_OFTEN = ("LoRA", "plain", "upper half", "plain, upper half")  # what takes a turn in every round; the rest in the first


class Windows(torch.utils.data.Dataset):
    """Token ids, as a plain loop gives them to the Trainer."""

    def __init__(self, items: Any) -> None:
        self.ids = [torch.from_numpy(item.ids) for item in items]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        ids = self.ids[k]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def plain(model: ls.Model, plan: Any, planned: Any, options: argparse.Namespace, steps: int) -> float:
    """Seconds of peft and the Trainer for so many steps."""
    from peft import get_peft_model
    from transformers import Trainer, TrainingArguments

    network = ls.cut(model, plan)
    job = planned.job
    wrapped = get_peft_model(network, job.method.config(ls.load(network), job.strategy))
    items = [item for item in job.objective.learned.items if len(item) == options.length]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=options.batch,
            learning_rate=1e-3,
            lr_scheduler_type="cosine",
            bf16=model.device.type == "cuda",
            use_cpu=model.device.type == "cpu",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        )
        trainer = Trainer(model=wrapped, args=arguments, train_dataset=Windows(items))
        started = time.perf_counter()
        trainer.train()
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started


def ours(job: Any, **changes: Any) -> float:
    """Seconds of layerscope's training, nothing saved."""
    objective = copy.copy(job.objective)
    objective.distillation = Distillation(job.uncut if changes.pop("distill", False) else None)
    with tempfile.TemporaryDirectory() as folder:
        return float(dataclasses.replace(job, objective=objective, **changes).train(Path(folder))[2].seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--without", default="13-19,27")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, help="a file that gets the numbers as JSON, after every training")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    model = ls.load(options.model, device=options.device)
    task = ls.task(options.text, kind="text", bos=False)
    plan = ls.LayerPlan.parse(f"without {options.without}", model.depth)
    half = Strategy.parse(f"({(model.depth - len(plan.removed(model.depth))) // 2 + 1}, L, L)")
    few = {"batch": options.batch, "max_length": options.length, "validation_limit": 16}
    given = {"steps": options.steps, "evaluate_every": options.steps, **few}
    whole = plan_healing(model, plan, task, **given)
    upper = plan_healing(model, plan, task, strategy=half, train_limit=options.steps * options.batch // EPOCHS, **given)
    all_of_it = plan_healing(model, plan, task, method="finetune", **given).job
    finetune = {"method": all_of_it.method, "hyperparameters": all_of_it.hyperparameters}
    trainings: dict[str, Callable[[], float]] = {
        "LoRA": lambda: ours(whole.job),
        "plain": lambda: plain(model, plan, whole, options, options.steps),
        "upper half": lambda: ours(upper.job),
        "plain, upper half": lambda: plain(model, plan, upper, options, options.steps),
        "distilled LoRA": lambda: ours(whole.job, distill=True),
        "finetune": lambda: ours(whole.job, **finetune),
        "distilled finetune": lambda: ours(whole.job, distill=True, **finetune),
    }
    first = whole.job.hyperparameters.model_copy(update={"max_steps": 5, "evaluate_every": 5})
    ours(whole.job, hyperparameters=first)  # whatever is only slow once
    plain(model, plan, whole, options, 5)
    seconds: dict[str, list[float]] = {}
    for turn in range(options.rounds):
        for name, training in trainings.items():
            if turn and name not in _OFTEN:
                continue
            seconds.setdefault(name, []).append(training())
            print(f"{name}: {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(told(seconds, options), indent=1) + "\n", encoding="utf-8")
    said = told(seconds, options)
    if options.format == "json":
        print(json.dumps(said, indent=1))
        return
    for name, value in said["seconds"].items():
        print(f"{name:24} {value:8.2f} s  {said['tokens per second'][name]:12,.0f} tokens/s")
    for name, value in said["ratios"].items():
        print(f"{name:24} {value:8.2f}   goal {GOALS[name]:.1f} {'or less' if 'time' in name else 'or more'}")


def told(seconds: dict[str, list[float]], options: argparse.Namespace) -> dict[str, Any]:
    """The fastest turn of each training, and how they compare, in equally many turns, as far as they have been run."""
    tokens = options.steps * options.batch * options.length
    best = {name: min(turns) for name, turns in seconds.items()}
    ratios = {}
    for name, pair in _RATIOS.items():
        turns = [seconds.get(training, []) for training in pair]
        both = min(map(len, turns))
        if both:
            above, below = (min(own[:both]) for own in turns)
            ratios[name] = above / below
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return {
        **{"steps": options.steps, "rounds": options.rounds, "epochs of the upper half": EPOCHS, "device": device},
        **{"seconds": best, "turns": seconds},
        **{"tokens per second": {name: tokens / value for name, value in best.items()}},
        **{"ratios": ratios, "goals": GOALS},
    }


if __name__ == "__main__":
    main()
