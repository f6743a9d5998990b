"""Fine-tune the garden's models and write garden/scores.json and the cards: is what was grown good enough?

    python garden/scores.py                                  # every model, both tasks, three seeds, the twin
    python garden/scores.py --models bert-s0 --tasks sst2    # a part; what is there already is kept
    python garden/scores.py --share 0/4                      # one of four processes that divide the work
    python garden/scores.py --twins                          # the untrained twins only, again
    python garden/scores.py --check                          # trains nothing; says what falls short

SST-2 is read from LAYERSCOPE_DATA or the hub. Every training is kept in layerscope's store, so that it is never
done twice.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "src")]

from nursery import cards  # noqa: E402 (the path above is where it is)

SCORES = HERE / "scores.json"
SEEDS = (0, 1, 2)
TWIN = "random"
# Models this narrow want larger steps than BERT-base's 2e-5.
SETTINGS: dict[str, dict[str, Any]] = {
    "sst2": {"learning_rate": 3e-4, "batch": 128, "epochs": 3, "max_length": 128},
    "pydocs": {"learning_rate": 3e-4, "batch": 32, "epochs": 8, "max_length": 128},
}
ENOUGH = 0.80  # of SST-2, for an encoder
SPREAD = 0.025  # of SST-2, between the means of the five BERT seeds
MARGIN = 0.10  # above the majority class and above the untrained twin
DECODERS = ("gpt2",)

Job = tuple[str, str, str]  # model, task, seed (or TWIN)


def jobs(models: list[str], tasks: list[str], seeds: list[int], share: tuple[int, int] = (0, 1)) -> list[Job]:
    """The trainings of one of several processes; those of one seed of all models come before those of the next."""
    return [(m, t, s) for s in (*map(str, seeds), TWIN) for t in tasks for m in models][share[0] :: share[1]]


def tuned(job: Job, **changes: Any) -> dict[str, Any]:
    """One training: its score, the metric and what the majority class gets."""
    import layerscope as ls

    model, task, seed = job
    twin = seed == TWIN
    source = f"{'random:' if twin else ''}garden:{model}"
    training = ls.tune(source, task, seed=0 if twin else int(seed), **SETTINGS[task] | changes)
    found = {"score": training.score, "metric": training.metric, "majority": training.majority}
    return found | {"edition": ls.task(task).edition}


def merge(job: Job, found: dict[str, Any], held_out: dict[str, float], path: Path) -> None:
    """Add one training to scores.json; several processes may do so at once."""
    from filelock import FileLock

    model, task, seed = job
    with FileLock(path.with_suffix(".lock")):
        everything = read(path)
        record = everything.setdefault(model, {"tasks": {}})
        record["held_out"] = held_out
        entry = record["tasks"].setdefault(task, {"seeds": {}, TWIN: None})
        if entry["seeds"] and entry.get("edition", found.get("edition")) != found.get("edition"):
            raise SystemExit(
                f"{path.name} has {model} on {task} {entry['edition']}, and here it is {found.get('edition')}: their "
                "rows differ. Use that Python, or score all seeds and the twin into another file with --out."
            )
        entry["metric"], entry["majority"] = found["metric"], found["majority"]
        entry["settings"] = SETTINGS[task]
        if found.get("edition"):
            entry["edition"] = found["edition"]  # pydocs has other rows in another Python
        if seed == TWIN:
            entry[TWIN] = found["score"]
        else:
            entry["seeds"] = dict(sorted({**entry["seeds"], seed: found["score"]}.items()))
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(dict(sorted(everything.items())), indent=2) + "\n", encoding="utf-8")
        partial.replace(path)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def shortfalls(scores: dict[str, Any]) -> list[str]:
    """What is not good enough, one sentence each."""
    found = []
    for model, record in scores.items():
        for task, entry in record["tasks"].items():
            if not entry["seeds"]:
                continue
            mean = _mean(entry)
            if task == "sst2" and not model.startswith(DECODERS) and mean < ENOUGH:
                found.append(f"{model} reaches {mean:.3f} on {task}, below {ENOUGH}.")
            for name, other in (("the majority class", entry["majority"]), ("its untrained twin", entry[TWIN])):
                if other is not None and mean < other + MARGIN:
                    found.append(f"{model} reaches {mean:.3f} on {task}, and {name} {other:.3f}.")
    means = {m: _mean(r["tasks"]["sst2"]) for m, r in scores.items() if r["tasks"].get("sst2", {}).get("seeds")}
    seeds = {m: mean for m, mean in means.items() if m.startswith("bert-s")}
    if seeds and max(seeds.values()) - min(seeds.values()) > SPREAD:
        found.append(f"The BERT seeds differ by {max(seeds.values()) - min(seeds.values()):.3f} on sst2: {seeds}.")
    return found


def update_cards(scores: dict[str, Any], folder: Path) -> None:
    """Each model's scores onto its card."""
    for model, record in scores.items():
        if (folder / model / cards.CARD).is_file():
            cards.write(folder / model, cards.read(folder / model) | {"scores": record["tasks"]})


def main(arguments: list[str] | None = None) -> None:
    import layerscope_garden

    names = [n for n in layerscope_garden.names() if (layerscope_garden.path(n) / "config.json").is_file()]
    options = _parser(names).parse_args(arguments)  # ELMos have no config.json: they are not tuned
    index, count = (int(part) for part in options.share.split("/"))
    if not options.check:
        changes = {"train_limit": options.limit} if options.limit else {}
        seeds = [] if options.twins else options.seeds
        for job in jobs(options.models, options.tasks, seeds, (index, count)):
            if not options.twins and _has(read(options.out), *job):
                continue
            found = tuned(job, **changes)
            merge(job, found, layerscope_garden.card(job[0])["held_out"], options.out)
            print(*job, f"{found['score']:.4f}", f"majority {found['majority']:.4f}", flush=True)
    scores = read(options.out)
    update_cards(scores, layerscope_garden.folder())
    for sentence in shortfalls(scores) or ["Nothing falls short."]:
        print(sentence)


def _mean(entry: dict[str, Any]) -> float:
    return float(np.mean(list(entry["seeds"].values())))


def _has(done: dict[str, Any], model: str, task: str, seed: str) -> bool:
    entry = done.get(model, {"tasks": {}})["tasks"].get(task, {"seeds": {}})
    return entry.get(TWIN) is not None if seed == TWIN else seed in entry["seeds"]


def _parser(names: list[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=names, choices=names)
    parser.add_argument("--tasks", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--twins", action="store_true", help="the untrained twins only, also where they have a score")
    parser.add_argument("--share", default="0/1", help="i/n: do every n-th training, from the i-th on")
    parser.add_argument("--limit", type=int, default=None, help="train on N rows only (to try things)")
    parser.add_argument("--out", type=Path, default=SCORES)
    parser.add_argument("--check", action="store_true", help="train nothing, write the cards, say what falls short")
    return parser


if __name__ == "__main__":
    main()
