"""A healing as a result: its row, its figures, what it says, and the folder that it leaves."""

import json
import math

import pytest

import layerscope as ls
from layerscope.tuning.healing import RECORDED
from tests.helpers.data import running_task
from tests.helpers.models import FEW_STEPS, WITHOUT_BLOCK_2, small_decoder


@pytest.fixture(scope="module")
def healing(tmp_path_factory):
    import os

    before = os.environ.get("LAYERSCOPE_HOME")
    os.environ["LAYERSCOPE_HOME"] = str(tmp_path_factory.mktemp("home"))
    yield ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), distill=True, **{**FEW_STEPS, "steps": 2})
    if before is None:
        del os.environ["LAYERSCOPE_HOME"]
    else:
        os.environ["LAYERSCOPE_HOME"] = before


def test_its_row_has_the_scores_before_and_after(healing):
    row = healing.frame.iloc[0]
    assert (row["uncut"], row["cut"], row["healed"]) == tuple(healing.scores[n] for n in ("uncut", "cut", "healed"))
    assert (row["steps"], row["mix"], row["tokens"]) == (2, 0.5, 2 * 4 * 16)
    assert healing.tokens_per_second == pytest.approx(row["tokens"] / row["seconds"])


def test_its_figures_are_bars_and_the_loss_over_time(healing):
    kinds = [figure.kind for figure in healing.figures()]
    assert kinds == ["bars", "curve", "table"]
    assert healing.figures()[0].values == tuple(healing.scores.values())
    assert "Lower is better" in healing.figures()[0].reading


def test_it_says_what_came_of_it(healing):
    said = str(healing.findings()[0])
    assert "after healing" in said
    assert "where the uncut model has" in said
    assert "Healing(" in repr(healing)
    healing.outcome["scores"]["healed"] = 2 * healing.scores["cut"]
    assert "did not get better" in str(healing.findings()[1])
    healing.outcome["scores"]["healed"] = healing.score
    healing.outcome["kept"] = {"k": 8, "left_out": 0.1, "divergence": 0.5, "kept_divergence": 0.4}
    assert "8 likeliest outputs of the teacher that were kept leave out 10.00%" in str(healing.findings()[-1])
    del healing.outcome["kept"]


def test_what_is_within_noise_is_said_and_better_than_uncut_is_not_believed(healing):
    scores, gains = dict(healing.outcome["scores"]), dict(healing.outcome["gains"])
    assert set(gains) == {"uncut", "cut"}
    better = healing.scores["cut"] - healing.scores["healed"]
    assert healing.gains["cut"].value == pytest.approx(better, rel=1e-3)
    assert healing.gains["cut"].low < better < healing.gains["cut"].high
    row = healing.frame.iloc[0]
    assert (row["over_uncut_low"], row["over_cut_high"]) == (healing.gains["uncut"].low, healing.gains["cut"].high)
    healing.outcome["gains"] = {"uncut": {"value": 0.1, "low": -2.0, "high": 2.2}, "cut": gains["cut"]}
    said = next(line for line in map(str, healing.findings()) if "uncut model is within noise" in line)
    assert "between -2 and +2.2 perplexity (95% interval)" in said
    assert "do not tell which of the two is better" in healing.figures()[0].caveat
    healing.outcome["gains"]["uncut"] = {"value": 1.0, "low": 0.5, "high": 1.5}
    assert any("does not show that the blocks were of no use" in line for line in map(str, healing.findings()))
    healing.outcome["gains"]["uncut"] = {"value": 1.0, "low": None, "high": None}
    assert any("cannot tell whether it is better than the uncut model" in line for line in map(str, healing.findings()))
    healing.outcome["scores"], healing.outcome["gains"] = scores, gains


def test_its_folder_is_a_checkpoint_with_its_numbers(healing, tmp_path):
    folder = healing.copy_to(tmp_path / "healed")
    numbers = json.loads((folder / RECORDED).read_text())
    assert numbers["scores"] == healing.scores
    record = json.loads((folder / "layerscope.json").read_text())
    assert record["steps"][0]["keep"] == [1, 3]
    assert record["learned"][0]["n"] == len(healing.job.training_data.train)
    assert record["scores"][0]["score"] == pytest.approx(healing.score)
    assert "not learned from" in record["scores"][0]["note"]
    assert ls.load(folder).depth == 2


def told_with(healing, scores, cut=None):
    outcome = dict(healing.outcome)
    healing.outcome = {**outcome, "scores": scores, "gains": {} if cut is None else {"cut": cut}}
    findings = healing.findings()
    healing.outcome = outcome
    return findings


def test_the_share_that_is_brought_back_is_sure_by_the_gain_over_the_cut_model(healing):
    scores = {"uncut": math.e, "cut": math.e**3, "healed": math.e**2}
    first, share = told_with(healing, scores)
    assert first.text.startswith("perplexity is 7.3891 after healing and 20.0855 before")
    assert share.text == "Healing brings back 50% of what the cut lost."
    assert (first.sure, share.sure) == (None, None)
    share = told_with(healing, scores, {"value": 5.0, "low": 2.0, "high": 9.0})[-1]
    assert share.sure is True
    assert "95% interval 2.000 to 9.000 of what it gains over the cut model" in share.evidence
    few = told_with(healing, scores, {"value": 5.0, "low": None, "high": None})
    assert few[0].sure is few[-1].sure is False
    assert "too few rows for an interval" in few[-1].evidence
    alone = told_with(healing, {"cut": 20.0, "healed": 9.0})[-1]
    assert alone.text == "Healing takes perplexity from 20.0 to 9.000."


def test_what_was_saved_is_scored_next(healing):
    assert (healing.next_step().command, healing.next_step().saved) == ("evaluate", "")
