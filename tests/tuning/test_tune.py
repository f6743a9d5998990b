"""Tuning every family under every method: the right parameters change, what is saved answers as what was trained."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import zoo
from quick import QUICK, WORDS, model, rows

import layerscope as ls
from layerscope.errors import InputError, ModelError, StoreError
from layerscope.extract.exam import exam
from layerscope.models.anatomy import block_modules, head_modules
from layerscope.models.replay import caches_off
from layerscope.store import Store
from layerscope.tuning.adapters import merge_adapters
from layerscope.tuning.heads import classifier_of
from layerscope.tuning.layer_heads import LayerHeads


def changed(before, after):
    """Names of parameters that are not what they were."""
    return {name for name, value in after.items() if name not in before or not torch.equal(before[name], value)}


CASES = [
    (family, method, strategy)
    for family in zoo.FAMILIES
    for method in ("finetune", "adapter", "lora")
    for strategy in ("full", "(2, 3, 4)", "(2, 3, 3)", "head-only")
    if not (family == "albert" and strategy.startswith("(2")) and not (method != "finetune" and strategy == "head-only")
]


@pytest.mark.parametrize(("family", "method", "strategy"), CASES)
def test_exactly_the_right_parameters_change(family, method, strategy, task):
    base = model(family)
    run = ls.tune(base, task, strategy=strategy, method=method, size=4 if method != "finetune" else None, **QUICK)
    start = classifier_of(base, task, 0)
    tuned = run.model
    names = {id(p): name for name, p in tuned.named_parameters()}
    anatomy = base.anatomy
    blocks = block_modules(tuned.base_model, anatomy)
    expected = {n for path in head_modules(tuned, anatomy) for n in names.values() if n.startswith(f"{path}.")}
    chosen = run.job.strategy.blocks
    inside = {names[id(p)] for b in chosen for p in blocks[b - 1].parameters()}
    if method == "finetune":
        expected |= inside | (set(names.values()) if strategy == "full" else set())
    elif method == "adapter":
        expected |= {n for n in inside if ".adapter." in n or "norm" in n.lower() or "ln_" in n}
    else:
        targets = tuple(f".{target}.weight" for target in anatomy.lora)
        expected |= {n for n in inside if n.endswith(targets)}
    found = changed(dict(start.network.named_parameters()), dict(tuned.named_parameters()))
    assert found <= expected
    untouched = {n for n in expected - found if "position" not in n and "token_type" not in n and "key.bias" not in n}
    # An embedding that no text uses, or a bias that a softmax cancels, may stay; a whole weight matrix may not.
    assert not {n for n in untouched if n.endswith("weight") and "embed" not in n and "mask" not in n}, untouched
    assert len(blocks) == int(run.job.strategy.head)


@pytest.mark.parametrize("family", [f for f in zoo.FAMILIES if ls.load(zoo.network(f)).anatomy.prefix])
def test_prefix_tuning_through_peft(family, task):
    run = ls.tune(model(family), task, method="prefix", size=3, **QUICK)
    assert run.trainable > 0
    assert 0 <= run.score <= 1
    assert type(run.model).__name__.startswith("Peft")


@pytest.mark.parametrize("method", ["finetune", "adapter", "lora"])
@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt2", "deberta", "modernbert"])
def test_the_cache_changes_nothing(family, method, task):
    options = {"strategy": "(3, 4, 4)", "method": method, **QUICK}
    base = model(family)
    cached, plain = (ls.tune(base, task, cache=cache, **options) for cache in (True, False))
    assert cached.result["cached"]
    assert not plain.result["cached"]
    assert [e["score"] for e in cached.result["epochs"]] == [e["score"] for e in plain.result["epochs"]]
    one, two = (dict(run.model.named_parameters()) for run in (cached, plain))
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-3, atol=1e-4)


def test_a_cache_that_is_too_large_is_not_made(task, caplog):
    run = ls.tune(model(), task, strategy="(4, 4, 4)", cache_limit=1e-9, **QUICK)
    assert not run.result["cached"]
    assert "it is computed in every epoch" in caplog.text


def test_it_learns(task):
    run = ls.tune(model(), task, epochs=12, batch=8, learning_rate=3e-3)
    assert run.score > run.result["majority"] + 0.2
    assert exam(ls.load(run.model), task, max_length=128).score(exam(ls.load(run.model), task).logits()) == run.score
    assert run.result["best_epoch"] in [e["epoch"] for e in run.result["epochs"]]
    assert (run.path / "checkpoint" / "model.safetensors").is_file()
    record = json.loads((run.path / "run.json").read_text())
    assert (record["strategy"], record["seed"], record["method"]["name"]) == ("(1, 4, 4)", 0, "finetune")
    assert record["training"]["learning_rate"] == 3e-3


def test_a_second_call_reads_the_store_and_seeds_differ(task, tmp_path):
    base = model()
    first = ls.tune(base, task, **QUICK)
    start = time.perf_counter()
    assert ls.tune(base, task, **QUICK).path == first.path
    assert time.perf_counter() - start < first.seconds + 5
    many = ls.tune(base, task, seeds=[0, 1], out=tmp_path / "out", **QUICK)
    assert many.runs[0].path == first.path
    assert many.mean == pytest.approx(many.scores.mean())
    assert many.error == pytest.approx(many.scores.std(ddof=1) / 2**0.5)
    assert ls.load(str(tmp_path / "out" / "seed-1" / "checkpoint")).depth == 4
    weights = [run.model.classifier.weight for run in many.runs]
    assert not torch.equal(*weights)


def test_learning_rates_are_swept(task):
    run = ls.tune(model(), task, learning_rate=[1e-7, 1e-2], epochs=2, batch=8)
    assert run.tried == 2
    others = [ls.tune(model(), task, learning_rate=rate, epochs=2, batch=8).score for rate in (1e-7, 1e-2)]
    assert run.score == max(others)


def both(frame, **columns):
    return ls.task({"train": frame, "validation": frame}, **columns)


def test_regression():
    frame = rows(40, 0)
    numbers = both(frame.assign(label=frame["label"] + 0.5))
    run = ls.tune(model(), numbers, strategy="(3, 4, 4)", epochs=4, batch=8, learning_rate=3e-3)
    assert run.result["metric"] == "pearson_spearman"
    assert run.model.config.num_labels == 1


@pytest.mark.parametrize("cache", [True, False])
def test_choices_of_varying_number(cache):
    frame = rows(40, 0)
    options = [[WORDS[(k + c) % 3] for c in range(2 + i % 2)] for i, k in enumerate(frame["label"])]
    task = both(frame.assign(options=options, label=0), choices="options", text="text", label="label")
    run = ls.tune(model(), task, strategy="(4, 4, 4)", epochs=2, batch=8, cache=cache)
    assert type(run.model).__name__ == "BertForMultipleChoice"
    assert ls.evaluate(run.model, task) == pytest.approx(run.score)


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import layerscope as ls
task = {"train": sys.argv[3], "validation": sys.argv[4]}
run = ls.tune(sys.argv[2], task, epochs=4, batch=4, learning_rate=3e-3, strategy="(2, 4, 4)")
print(run.result["epochs"])
"""


def test_killed_in_the_middle_it_ends_with_the_same_metrics(tmp_path):
    folder = zoo.save(tmp_path / "model", "bert", "encoder")
    for name, seed in (("train", 0), ("validation", 1)):
        rows(120 if name == "train" else 40, seed).to_csv(tmp_path / f"{name}.csv", index=False)
    command = [sys.executable, "-c", KILLED, os.path.dirname(zoo.__file__), folder]
    command += [str(tmp_path / "train.csv"), str(tmp_path / "validation.csv")]

    def start(home):
        environment = {**os.environ, "LAYERSCOPE_HOME": str(tmp_path / home)}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)

    whole, _ = start("whole").communicate(timeout=120)
    victim = start("killed")
    deadline = time.monotonic() + 60
    while not list((tmp_path / "killed").glob("unfinished/run/*/checkpoints/checkpoint-60/trainer_state.json")):
        assert time.monotonic() < deadline
        assert victim.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.wait(30)
    assert [e.state for e in Store(tmp_path / "killed").entries() if e.kind == "run"] == ["unfinished"]
    again, _ = start("killed").communicate(timeout=120)
    assert again == whole


def test_a_full_disk_is_a_sentence_and_leaves_nothing_that_loads(task, monkeypatch, home):
    training = sys.modules["layerscope.tuning.training"]

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "save", full)
    with pytest.raises(StoreError, match="the disk is full"):
        ls.tune(model(), task, **QUICK)
    assert [e.state for e in Store().entries() if e.kind == "run"] == ["unfinished"]
    assert not list(home.rglob("checkpoint/config.json"))


def test_an_unwritable_folder_is_a_sentence_before_the_work(task, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="file"):
        ls.tune(model(), task, out=tmp_path / "file", **QUICK)
    assert not list(Store().entries())


def test_adapters_load_back_and_cannot_be_merged(task):
    run = ls.tune(model(), task, method="adapter", size=4, strategy="(3, 4, 4)", **QUICK)
    files = {p.name for p in (run.path / "adapter").iterdir()}
    assert files == {"adapter.json", "adapter.safetensors"}
    size = (run.path / "adapter" / "adapter.safetensors").stat().st_size
    assert size < 0.3 * sum(p.numel() * 4 for p in run.model.parameters())
    assert json.loads((run.path / "adapter" / "adapter.json").read_text())["blocks"] == [3, 4]
    with pytest.raises(InputError, match="cannot be merged"):
        merge_adapters(run.model)


def test_near_identity_at_the_start(task):
    from layerscope.tuning.adapters import add_adapters

    for family in zoo.FAMILIES:
        opened = model(family, "classifier")
        inputs = zoo.inputs()
        with torch.inference_mode():
            before = opened.network(**inputs).logits
            add_adapters(opened, [1, 2, 3, 4], 8)
            after = opened.network(**inputs).logits
        assert not torch.equal(before, after), family
        torch.testing.assert_close(after, before, atol=0.1, rtol=0.1)


def test_a_study_is_a_table_and_a_figure(task, tmp_path):
    frame = ls.strategy_study(model(), task, ["full", "(l*+1, L, L)", "(l*, l*, l*)"], seeds=(0, 1), best=4, **QUICK)
    assert list(frame["strategy"]) == ["full", "(l*, l*, l*)"]  # l* is the top layer: nothing is above it
    assert list(frame["tuned_layers"]) == [4, 1]
    assert (frame["seeds"] == 2).all()
    assert (frame["inference_seconds"] > 0).all()
    ls.plot_strategies(frame, tmp_path / "s.png")
    assert (tmp_path / "s.png").stat().st_size > 1000


@pytest.mark.parametrize("mode", ["tuned", "tunedorig"])
def test_trained_truncation_curves(mode, task):
    base = model()
    tuned = ls.load(ls.tune(base, task, epochs=3, batch=8, learning_rate=3e-3).model)
    extra = {"base": base} if mode == "tunedorig" else {}
    frame = ls.truncation_curve(tuned, task, mode=mode, epochs=4, learning_rate=1e-2, **extra)
    assert list(frame["layer"]) == [0, 1, 2, 3, 4]
    if mode == "tuned":
        untuned = ls.truncation_curve(tuned, task)
        assert frame["score"].iloc[:4].mean() >= untuned["score"].iloc[:4].mean()
    with pytest.raises(InputError, match="base="):
        ls.truncation_curve(tuned, task, mode="tunedorig")


def test_heads_side_by_side_learn_what_each_learns_alone(task):
    """Without dropout the head of every layer ends where it ends when it is trained alone."""
    base = model(hidden_dropout_prob=0.0)
    states = [torch.stack([ls.extract(base, task, split=s)[k] for k in range(5)]) for s in ("train", "validation")]
    labels = [task.split(s).labels for s in ("train", "validation")]
    options = {"learning_rate": 1e-2, "epochs": 4, "batch": 16}

    def fitted(layers):
        heads = LayerHeads(classifier_of(base, task, 0), layers)
        parts = [part[layers] for part in states]
        scores, _ = heads.fit(parts[0], labels[0], parts[1], lambda z: (z.argmax(1) == labels[1]).mean(), **options)
        return scores, heads.parameters

    scores, together = fitted([0, 1, 2, 3, 4])
    for k in range(5):
        score, alone = fitted([k])
        assert score[0] == pytest.approx(scores[k])
        for name, value in alone.items():
            torch.testing.assert_close(value[0], together[name][k], rtol=1e-4, atol=1e-5)


def test_a_head_that_reads_all_tokens_is_refused(task):
    with pytest.raises(ModelError, match="reads more than the summary token"):
        LayerHeads(model("modernbert", "classifier", classifier_pooling="mean"), [0, 1])


@pytest.mark.parametrize("family", zoo.FAMILIES)
def test_no_part_of_a_head_is_lost_when_lora_is_reloaded(family, task):
    """peft's adapter on a classifier with another random head answers as the merged checkpoint does."""
    from peft import PeftModel

    base = model(family)
    run = ls.tune(base, task, method="lora", size=2, **QUICK)
    other = classifier_of(base, task, seed=5)
    again = PeftModel.from_pretrained(other.network, run.path / "adapter").eval()
    merged = run.model.eval()
    inputs = zoo.inputs()
    with torch.inference_mode(), caches_off(merged), caches_off(other.network):
        torch.testing.assert_close(again(**inputs).logits, merged(**inputs).logits, rtol=1e-3, atol=1e-4)


def test_two_processes_tune_together(task, tmp_path):
    folder = zoo.save(tmp_path / "model", "bert", "encoder")
    (tmp_path / "data").mkdir()
    for name, seed in (("train", 0), ("validation", 1)):
        rows(48, seed).to_csv(tmp_path / "data" / f"{name}.csv", index=False)
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    command += ["-m", "layerscope", "tune", folder, "--task", str(tmp_path / "data"), "--strategy", "(3, 4, 4)"]
    command += ["--epochs", "2", "--batch", "4", "--format", "json", "-o", str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (row,) = json.loads(done.stdout)
    task = ls.task(tmp_path / "data")
    assert ls.evaluate(str(tmp_path / "out" / "checkpoint"), task, max_length=128) == pytest.approx(row["score"])
