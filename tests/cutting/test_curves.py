"""The truncation curve and the skip map against really cutting the model and evaluating each."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas
import pytest
import zoo

import layerscope as ls
from layerscope.cutting.curves import contiguous, truncations
from layerscope.cutting.sweep import sweep
from layerscope.cutting.trial import Trial
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.exam import exam
from layerscope.store import Store

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]


def table(count=40):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(1, 12))) for _ in range(count)]
    return pandas.DataFrame({"text": texts, "label": np.arange(count) % 3})


def model(family, kind="classifier"):
    return ls.load(zoo.network(family, kind), tokenizer=zoo.tokenizer(family))


@pytest.mark.parametrize("tokens", [40, 2000])  # 2,000: many pending states go through a block together
@pytest.mark.parametrize("family", zoo.FAMILIES)
def test_every_plan_in_one_pass_gives_what_cutting_gives(family, tokens):
    opened, data = model(family), table()
    plans = [*truncations(4), *(ls.LayerPlan.skipped(4, i, j) for i, j in contiguous(4)), ls.LayerPlan([1, 3])]
    found = exam(opened, data, batch_tokens=tokens)
    together = sweep(found, plans, "test")
    for plan, logits in zip(plans, together, strict=True):
        try:
            smaller = ls.cut(opened, plan)
        except ModelError:
            assert family in ("modernbert", "deberta-v2")  # what cannot be saved is evaluated all the same
            continue
        expected = exam(ls.load(smaller, tokenizer=opened.tokenizer), data).logits()
        np.testing.assert_allclose(logits, expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("family", ["bert", "albert", "xlnet"])
def test_multiple_choice(family):
    generator = np.random.default_rng(0)
    options = [list(generator.choice(WORDS, size=generator.integers(2, 4))) for _ in range(20)]
    data = ls.task(table(20).assign(options=options, label=0), choices="options", text="text", label="label")
    opened = model(family, "choice")
    frame = ls.skip_map(opened, data).frame
    for row in frame.itertuples():
        assert ls.evaluate(ls.skip(opened, row.first, row.last), data) == row.score
    assert (frame["whole"] == ls.evaluate(opened, data)).all()


def test_the_curve_has_what_it_says():
    opened = model("bert")
    frame = ls.truncation_curve(opened, table()).frame
    assert list(frame["layer"]) == [0, 1, 2, 3, 4]
    assert frame["score"][4] == ls.evaluate(opened, table())
    assert frame["majority"].unique() == pytest.approx(14 / 40)
    for layer in range(5):
        assert frame["parameters"][layer] == sum(p.numel() for p in ls.truncate(opened, layer).parameters())
    steps = np.diff(frame["macs"])
    assert (steps == steps[0]).all()
    d, inner, t = 32, 48, 80  # attention projections, scores and values, feed-forward
    assert steps[0] == t * (4 * d * d + 2 * d * inner) + 2 * t * t * d
    with pytest.raises(InputError, match="There is no mode 'other'"):
        ls.truncation_curve(opened, table(), mode="other")


def test_spans_are_limited():
    frame = ls.skip_map(model("bert"), table(), max_span=2).frame
    assert list(zip(frame["first"], frame["last"], strict=True)) == [
        (1, 1),
        (1, 2),
        (2, 2),
        (2, 3),
        (3, 3),
        (3, 4),
        (4, 4),
    ]
    with pytest.raises(InputError, match="max_span is 9"):
        ls.skip_map(model("bert"), table(), max_span=9)


def test_prefixes_are_shared():
    """A twelve-block model: 298 of 572 block runs are left for the skip map, 12 for the curve."""
    opened = model("bert")
    deep = ls.load(zoo.network("bert", num_hidden_layers=12), tokenizer=opened.tokenizer)
    assert Trial(deep, [ls.LayerPlan.skipped(12, i, j) for i, j in contiguous(12)]).block_runs == 298
    assert Trial(deep, truncations(12)).block_runs == 12


def test_a_second_call_reads_the_store(monkeypatch):
    opened = model("bert")
    first = ls.truncation_curve(opened, table())
    monkeypatch.setattr(Trial, "logits", None)
    pandas.testing.assert_frame_equal(ls.truncation_curve(opened, table()).frame, first.frame)


KILLED = """
import sys, time, pandas
sys.path.insert(0, sys.argv[3])
import layerscope as ls
from layerscope.cutting import sweep
from layerscope.extraction import loop
loop.WINDOW = 8
save = sweep.save_file
def slow(tensors, path):
    save(tensors, path)
    print(path.name, flush=True)
    time.sleep(float(sys.argv[4]))
sweep.save_file = slow
print(ls.truncation_curve(sys.argv[1], sys.argv[2]).frame["score"].tolist())
"""


def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path):
    folder, data = zoo.save(tmp_path / "model", "bert"), tmp_path / "data.csv"
    table().to_csv(data, index=False)

    def start(pause):
        command = [sys.executable, "-c", KILLED, folder, str(data), os.path.dirname(zoo.__file__), pause]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    victim = start("1")
    assert "shard-00000" in victim.stdout.readline()
    assert "shard-00001" in victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    victim.wait(30)
    assert [e.state for e in Store().entries()] == ["unfinished"]
    written, _ = start("0").communicate(timeout=120)
    assert "shard-00000" not in written
    assert "shard-00004" in written
    assert written.splitlines()[-1] == str(ls.truncation_curve(folder, data).frame["score"].tolist())


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures(ending, tmp_path):
    opened = model("bert")
    curve, spans = ls.truncation_curve(opened, table()), ls.skip_map(opened, table())
    lines = ls.Truncation.together({"a": curve, "b": curve}).plot(tmp_path / f"curve.{ending}").lines
    assert [line.get_label() for line in lines] == ["a", "b", "most frequent class"]
    axes = spans.plot(tmp_path / f"map.{ending}")
    spans = spans.frame
    image = axes.images[0].get_array()
    assert image[2, 0] == spans[(spans["first"] == 1) & (spans["last"] == 3)]["score"].iloc[0]
    assert image.mask[0, 2]
    assert all((tmp_path / f"{name}.{ending}").stat().st_size > 1000 for name in ("curve", "map"))


def test_a_real_tuned_model(tuned_minilm):
    """MiniLM tuned on pydocs: the curve and the map agree with brute force, and the top block can go."""
    opened = ls.load(tuned_minilm)
    curve = ls.truncation_curve(opened, "pydocs", limit=200).frame
    assert curve["score"][6] > curve["majority"][6] + 0.15
    for layer in (0, 2, 5):
        assert ls.evaluate(ls.truncate(opened, layer), "pydocs", limit=200) == curve["score"][layer]
    spans = ls.skip_map(opened, "pydocs", limit=200, max_span=2).frame
    for row in spans.iloc[[0, 4, 9]].itertuples():
        assert ls.evaluate(ls.skip(opened, row.first, row.last), "pydocs", limit=200) == row.score
