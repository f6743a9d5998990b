"""Which claims of the four papers hold here. Writes claims.json; `--page` makes claims.md, .csv and pictures of it.

Run with: python docs/results/claims.py --minutes 15 --workers 15 --models bge=FOLDER,mpnet=FOLDER --wider smollm2=FILE

The recipes' experiments on other models, with the offline profile's settings except for SETTINGS. All their jobs
go to `--workers` processes (small models keep a GPU busy only together), the most telling first: every claim on one
task, then more tasks, then more models. What a job gave is in claims.json as soon as it has ended, so that a later run
goes on with the others, here or on another machine; trainings are kept in the store. After `--minutes` what still runs
is stopped. `--rehearse` runs every job with next to no data: its numbers mean nothing. `--evidence` runs what claims
with little evidence need, and nothing else; on one H200 it takes about 40 minutes:

    python docs/results/claims.py --evidence --minutes 45 --workers 15 --models bge=FOLDER,mpnet=FOLDER
    python docs/results/claims.py --page
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from layerscope.engine import Job, Outcome, check_engine
from layerscope.recipes.experiment_run import ExperimentRun
from layerscope.recipes.recipe import Experiment, Profile, read_recipe
from layerscope.recipes.reproduce import available, cells_of, changed
from layerscope.store import write_json

HERE = Path(__file__).parent
PROFILE = "offline"
GARDEN = {"learning_rate": 3e-4}  # narrow models learn faster
MODELS: dict[str, Any] = {
    name: {"source": f"garden:{name}-s0", "training": GARDEN} for name in ("bert", "roberta", "albert", "electra")
}
WIDER: dict[str, Any] = {
    **{name: {"source": f"garden:{name}-s0", "training": GARDEN} for name in ("gpt2", "xlnet")},
    "minilm": "demo:minilm",
}
# Trainings that differ in nothing are done once for all papers.
TRAINING = {"learning_rate": 3e-5, "batch": 32, "epochs": 3, "train_limit": 6000, "validation_limit": 1000}
BOTH = {"methods": ["finetune", "adapter"]}
# The strategies that claims compare, without those that no claim names.
DECIDING = ["full", "(L-2, L, L)", "(l*-2, l*, l*)", "(l*-2, l*, L)", "(l*+1, L, L)", "(m-2, m, L)"]
EIGHT = tuple((f"s{a}", f"s{b}") for a, b in ((0, 1), (2, 3), (4, 0), (1, 2), (3, 4), (0, 2), (1, 3), (2, 4)))
SETTINGS: dict[str, dict[str, Any]] = {
    "phang2021": {"training": TRAINING},
    "wu2020": {"training": TRAINING, "measures": ["neuron", "svcca", "cka"]},
    # Claims on section 5 are decided by linear maps: the start from one would only make another curve.
    "ren2023": {"training": TRAINING, "section5": ["linear", "inn start=plain"]},
    "xie2022": {"training": TRAINING, "methods": ["finetune"]},
}
_STEPS = {"max_steps": 2, "train_limit": 96, "validation_limit": 64, "max_length": 32, "learning_rate": 3e-4}
_ROWS = {"train": 100, "test": 100, "max_length": 32, "options": {"inn": {"steps": 20}}}
REHEARSAL: dict[str, dict[str, Any]] = {
    "phang2021": {"training": _STEPS, "heads": {"train_limit": 64, "epochs": 1}, "reading": {"limit": 64}},
    "wu2020": {"training": _STEPS, "words": {"pool": "words", "limit": 40}, "attention": {"limit": 10}},
    "ren2023": {
        **{
            "training": _STEPS,
            "pairs": 2,
            "every_pair": 2,
            "rows": _ROWS,
            "words": {**_ROWS, "train": 30, "test": 30},
            "reading": {"limit": 200},
        },
        **{"injecting": {"train": 100, "limit": 64}, "synthesis": {"repeats": 1, "options": {"inn": {"steps": 20}}}},
    },
    "xie2022": {"training": _STEPS, "reading": {"limit": 300}, "sizes": [150, 120, 100, 60], "permutations": 5},
}


@dataclass(frozen=True)
class Step:
    """Some experiments of a paper on some models and tasks."""

    paper: str
    only: str
    models: Mapping[str, Any] | None = None  # the profile's own if not given
    tasks: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1)
    settings: Mapping[str, Any] = field(default_factory=dict)  # where they differ from SETTINGS
    couples: tuple[tuple[str, str], ...] = ()  # pairs of seeds, where they are not the profile's
    inside: bool = False  # only where nu picks no end, so that strategies around l* are strategies of their own
    apart: bool = False  # only train their strategies, job by job, so that the experiment itself finds them done
    device: str | None = None  # the GPU where there is one


def steps(given: Mapping[str, Any], wider: Mapping[str, Any]) -> Iterator[Step]:
    """What is run, in this order."""
    first, wider = {**given, **MODELS}, {**wider, **WIDER}
    few = {**dict(list(given.items())[:1]), "bert": MODELS["bert"]}
    others = {name: MODELS[name] for name in MODELS if name not in few}
    # Ten thousands of decompositions of small matrices are faster on a core than on a GPU.
    yield Step("wu2020", "fig1,fig2,fig4", device="cpu")
    yield Step("phang2021", "fig1", first, ("sst2",))
    yield Step("ren2023", "table3,table4,fig2,fig3,fig4", tasks=("sst2",))
    yield from _early(first, few, "sst2")
    yield Step("phang2021", "fig1", first, ("stsb",))
    yield from _early(first, few, "mrpc")
    yield from _tuned(first, "sst2")
    yield from _tuned(first, "stsb")
    yield from _tuned(first, "mrpc")
    yield from _studied(few, "sst2")
    yield from _studied(few, "mrpc")
    for task in ("sst2", "mrpc"):
        yield Step("xie2022", "fig12", first, (task,))
    for task in ("sst2", "mrpc", "stsb"):
        yield Step("phang2021", "fig3,fig4", first, (task,), (1,))
    yield from _measured(wider, "sst2")
    for task in ("cola", "rte"):
        yield from _measured(first, task)
    yield Step("phang2021", "fig1", first, ("hellaswag",))
    yield Step("phang2021", "fig3,fig4", first, ("hellaswag",), (0,))
    yield Step("ren2023", "table3,table4,fig2,fig3,fig4", tasks=("mrpc",))
    yield from _measured(wider, "mrpc")
    for task in ("sst2", "mrpc"):
        yield Step("xie2022", "table6", others, (task,), apart=True)
        yield Step("wu2020", "table1", others, (task,), apart=True)
        yield Step("xie2022", "table6", others, (task,))
        yield Step("wu2020", "fig5,fig7,table1", others, (task,))


def evidence(given: Mapping[str, Any]) -> Iterator[Step]:
    """What claims with little evidence need: `--evidence`.

    Xie et al.'s strategies are told apart only where nu picks no end: 3 <= l* <= L - 1, and not the middle layer. Wu et
    al.'s freezing follows the paper's rule. Ren et al.'s networks have both starts, on eight pairs of seeds.
    """
    models = {**given, **{name: MODELS[name] for name in ("bert", "roberta", "electra")}, **WIDER}
    tasks = ("sst2", "mrpc", "cola", "qnli", "mnli", "rte", "boolq")
    for task in tasks:
        for name, model in models.items():
            yield Step(
                "xie2022", "table6", {name: model}, (task,), settings={**BOTH, "strategies": DECIDING}, inside=True
            )
    yield from _seeds("sst2")
    for task in tasks[:5]:
        yield Step("wu2020", "table1", models, (task,))
    for task in ("mnli", "mrpc"):
        yield from _seeds(task)


def _seeds(task: str) -> Iterator[Step]:
    """Ren et al.'s claims on one task, with networks of both starts, on eight pairs of seeds."""
    yield Step("ren2023", "table3,fig4", tasks=(task,))  # without any training
    yield Step("ren2023", "table4", tasks=(task,), settings={"pairs": 8})
    yield Step("ren2023", "table5,fig5", tasks=(task,), couples=EIGHT)


def _early(models: Mapping[str, Any], few: Mapping[str, Any], task: str) -> Iterator[Step]:
    """The trainings that other experiments rest on, and what is measured before any."""
    yield Step("phang2021", "fig1", models, (task,))
    yield Step("xie2022", "fig3,table2,fig6", models, (task,))
    yield Step("xie2022", "table6", few, (task,), settings=BOTH, apart=True)
    yield Step("wu2020", "table1", few, (task,), apart=True)


def _tuned(models: Mapping[str, Any], task: str) -> Iterator[Step]:
    """What is asked of models that the first experiment has tuned, of one seed."""
    yield Step("phang2021", "fig3,fig4", models, (task,), (0,))
    yield Step("phang2021", "fig7", models, (task,))


def _measured(models: Mapping[str, Any], task: str) -> Iterator[Step]:
    """What asks for no more trainings than one for each seed."""
    yield Step("phang2021", "fig1", models, (task,))
    yield Step("phang2021", "fig3,fig4", models, (task,), (0,))
    yield Step("xie2022", "fig3,fig12", models, (task,))


def _studied(models: Mapping[str, Any], task: str) -> Iterator[Step]:
    """What takes more trainings."""
    yield Step("ren2023", "table5,fig5", tasks=(task,))
    yield Step("wu2020", "fig5,fig7", models, (task,))
    yield Step("wu2020", "table1", models, (task,))
    yield Step("xie2022", "table6", models, (task,), settings=BOTH)


def cells(
    planned_steps: Sequence[Step], rehearsed: bool, missing: Mapping[str, str], picked: dict[str, list[Any]]
) -> dict[str, ExperimentRun]:
    """The jobs of all steps in their order, by name, without those that need what is missing.

    `picked` has the layer that nu picks and the number of layers, by model and task; what is not there yet is added.
    """
    planned: dict[str, ExperimentRun] = {}
    for step in planned_steps:
        if step.inside and not rehearsed and not _picks_inside(step, missing, picked):
            continue
        recipe = read_recipe(step.paper)
        profile = _without(missing, changed(recipe.profile(PROFILE), step.models, step.tasks or None, step.seeds))
        settings = {**profile.settings, **SETTINGS[step.paper], **(REHEARSAL[step.paper] if rehearsed else {})}
        settings |= step.settings
        if step.couples:
            profile = profile.model_copy(update={"lists": {**profile.lists, "couples": tuple(map(list, step.couples))}})
        for strategy in settings["strategies"] if step.apart else [None]:
            own = settings if strategy is None else {**settings, "strategies": [strategy]}
            changes = profile.model_copy(update={"settings": own})
            for cell in cells_of(recipe, recipe.chosen(step.only), changes, device=step.device):
                if not cell.claims:  # it makes a picture alone
                    continue
                if strategy is None:
                    planned.setdefault(cell.name, cell)
                else:  # it only trains
                    planned.setdefault(f"{cell.name} {strategy}", replace(cell, claims=()))
    return planned


def _picks_inside(step: Step, missing: Mapping[str, str], picked: dict[str, list[Any]]) -> bool:
    """Whether nu of the one model on the one task picks a layer that is neither an end nor the middle one."""
    import layerscope as ls
    from layerscope.tuning.strategy import middle_layer

    ((name, model),), (task,) = (step.models or {}).items(), step.tasks
    if name in missing or task in missing:
        return False
    if (key := f"{name}, {task}") not in picked:
        opened = ls.load(model if isinstance(model, str) else model["source"])
        reps = ls.extract(opened, task, split="train", pool="mean", limit=4000)
        picked[key] = [ls.specialty(reps, null=0).best, opened.depth]
        print(f"{name} on {task}: l* is {picked[key][0]}", flush=True)
    best, depth = picked[key]
    return best is not None and 3 <= best < depth and best != middle_layer(depth)


def enough(planned: Mapping[str, ExperimentRun]) -> dict[str, ExperimentRun]:
    """Jobs that between them have every experiment, model and task, each both where models are tuned and where not."""
    seen: set[tuple[str, ...]] = set()
    chosen = {}
    for name, cell in reversed(planned.items()):
        trains = any(call.call == "tune" for call in cell.experiment.calls)
        used = [part for v in cell.chosen.values() for part in (v if isinstance(v, list) else [v])]
        new = {(cell.paper, cell.experiment.name), *((str(part), str(trains)) for part in used)}
        if new - seen and cell.claims:
            seen |= new
            chosen[name] = cell
    return chosen


def _without(missing: Mapping[str, str], profile: Profile) -> Profile:
    def known(value: Any) -> bool:
        return not missing.keys() & set(value if isinstance(value, list) else [value])

    lists = {name: tuple(filter(known, values)) for name, values in profile.lists.items()}
    models = {name: model for name, model in profile.models.items() if known(name)}
    return profile.model_copy(update={"models": models, "tasks": tuple(filter(known, profile.tasks)), "lists": lists})


def unavailable(planned_steps: Sequence[Step]) -> dict[str, str]:
    """The models and tasks of all steps that cannot be opened here, and why."""
    models, tasks = {}, dict.fromkeys(["ewt-upos"])
    for step in planned_steps:
        profile = changed(read_recipe(step.paper).profile(PROFILE), step.models, step.tasks or None, step.seeds)
        models |= profile.models
        tasks |= dict.fromkeys(step.tasks)
    over = {"model": "$models", "task": "$tasks"}
    every = Experiment(title="all", where="everywhere", over=over, calls=())
    return available(Profile(models=models, tasks=tuple(tasks)), [every])[1]


class Findings:
    """What the jobs that have ended gave, in a file that is written anew after each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.jobs: dict[str, Any] = kept.get("jobs", {})
        self.missing: dict[str, str] = kept.get("missing", {})
        self.about: dict[str, Any] = kept.get("about", {})

    def begin(self, device: str, workers: int) -> None:
        """What follows is run there, so many jobs at a time."""
        self.about.setdefault("runs", []).append({"device": device, "workers": workers, "minutes": 0.0})

    def took(self, minutes: float) -> None:
        """So far, since the last beginning."""
        self.about["runs"][-1]["minutes"] = round(minutes, 1)

    def lacks(self, name: str, cell: ExperimentRun) -> bool:
        """Whether a job has not been done, or was done before there was one of its claims."""
        known = self.jobs.get(name, {}).get("statistics")
        return known is None or not {claim.name for claim in cell.claims} <= set(known)

    def add(self, name: str, cell: ExperimentRun, outcome: Outcome) -> None:
        """Note what became of a job."""
        entry: dict[str, Any] = {"paper": cell.paper, "experiment": cell.experiment.name, "chosen": dict(cell.chosen)}
        if outcome.folder is not None:
            said = {claim: asdict(value) for claim, value in cell.statistics(outcome.folder).items()}
            entry["statistics"] = {claim: _plain(value) for claim, value in said.items()}
        else:
            entry["reason"] = outcome.reason
        self.jobs[name] = {**entry, "seconds": round(outcome.seconds, 1), "run": len(self.about["runs"]) - 1}
        self.write()

    def write(self) -> None:
        """Whole or not at all, whoever writes."""
        with self._lock:
            write_json(self._path, {"about": self.about, "missing": self.missing, "jobs": self.jobs})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}


def run(planned: Mapping[str, ExperimentRun], findings: Findings, engine: str, minutes: float) -> None:
    """Do the jobs that are not done yet; after so many minutes what still runs is stopped."""
    todo = [name for name, cell in planned.items() if findings.lacks(name, cell)]
    start = time.monotonic()

    def stop() -> None:
        findings.took(minutes)
        findings.write()
        print(f"{minutes:g} minutes are over; {len(findings.jobs)} jobs are in the file", flush=True)
        for worker in multiprocessing.active_children():
            worker.kill()
        os._exit(0)

    watch = threading.Timer(60 * minutes, stop)
    watch.daemon = True
    watch.start()
    jobs = [Job(planned[name], name) for name in todo]
    for done, (place, outcome) in enumerate(check_engine(engine).run(jobs), 1):
        name = todo[place]
        findings.took((time.monotonic() - start) / 60)
        findings.add(name, planned[name], outcome)
        said = f"failed: {outcome.reason}" if outcome.reason else f"took {outcome.seconds:.0f} s"
        print(f"{time.monotonic() - start:.0f} s, {done} of {len(todo)}: {name} {said}", flush=True)
    watch.cancel()


def device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def named(models: str) -> dict[str, str]:
    """What name=folder,name=folder names."""
    return dict(part.split("=", 1) for part in models.split(",") if part)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--workers", type=int, default=1, help="processes that share the machine, and its GPU")
    parser.add_argument("--models", default="", help="further models, the most telling first: name=folder,name=folder")
    parser.add_argument("--wider", default="", help="models for fewer experiments, later: name=folder,name=file")
    parser.add_argument("--only", default="", help="jobs whose names begin so, with commas: phang2021,xie2022 fig3")
    parser.add_argument("--evidence", action="store_true", help="only what claims with little evidence need")
    parser.add_argument("--plan", action="store_true", help="only print the jobs; what nu picks for them is kept")
    parser.add_argument("--rehearse", action="store_true", help="next to no data, to see that everything runs")
    parser.add_argument("--out", type=Path, default=HERE, help="where claims.json and claims.md are")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    findings = Findings(given.out / "claims.json")
    if given.page:
        from claims_page import draw, page, table

        written = page(findings.about, findings.missing, findings.jobs)
        (given.out / "claims.md").write_text(written, encoding="utf-8")
        (given.out / "claims.csv").write_text(table(findings.jobs), encoding="utf-8")
        draw(findings.jobs, given.out)
        return
    further = named(given.models), named(given.wider)
    planned_steps = list(evidence({**further[0], **further[1]}) if given.evidence else steps(*further))
    findings.missing = unavailable(planned_steps)
    for name, reason in findings.missing.items():
        print(f"{name} is left out: {reason}", flush=True)
    planned = cells(planned_steps, given.rehearse, findings.missing, findings.about.setdefault("picked", {}))
    findings.write()
    if given.plan:
        print(*planned, sep="\n")
        return
    if given.rehearse:
        planned = enough(planned)
    if given.only:
        planned = {name: cell for name, cell in planned.items() if name.startswith(tuple(given.only.split(",")))}
    findings.about |= {"planned": list(planned), "training": TRAINING}
    findings.begin(device(), given.workers)
    findings.write()
    print(f"{len(planned)} jobs", flush=True)
    run(planned, findings, f"processes:{given.workers}", given.minutes)


if __name__ == "__main__":
    main()
