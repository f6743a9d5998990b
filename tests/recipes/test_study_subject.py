"""What a study is of, and what its parts read in the time there is."""

import copy

import pytest

import layerscope as ls
from layerscope.recipes.study_subject import Subject, parts
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model, save_random

pytestmark = pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": three_class_frame(80, 0), "validation": three_class_frame(60, 1)})


def test_rules_go_before_texts_and_texts_before_parts(task):
    model = random_model(kind="classifier")
    subject = Subject(model, task, None, [], 0.01, None, None, 16, 0)
    every = {part.name: part for part in parts()}
    texts = [subject.size(every["score"], None, seconds, 0.05) for seconds in (0.1, 4, 4.2, 60)]
    assert texts == [None, (50, 0), (54, 0), (60, 0)]
    searches = [subject.size(every["smaller"], None, seconds, 0.01) for seconds in (12, 16, 24, 60)]
    assert searches[0] is None
    assert [search for _, search in searches[1:]] == [2, 1, 0]
    assert [n for n, _ in searches[1:]] == [60, 60, 60]
    assert subject.reduced(every["smaller"], 50, 2).startswith("a sample of 50 of 60 texts and the rules angular")
    assert subject.reduced(every["smaller"], 60, 0) == ""
    longer = [subject.seconds(every["smaller"], None, 60, search, 0.01) for search in (2, 1, 0)]
    assert longer == sorted(longer)


def subject_of(model, task, **given):
    given = {"base": None, "others": [], "tolerance": 0.01, "split": None, "limit": None, "max_length": 16, "seed": 0}
    return Subject(model, task, **given)


def test_numbers_have_layers_to_tune_and_no_patches():
    import pandas

    frame = pandas.DataFrame({"text": three_class_frame(60, 0)["text"], "label": [k / 7 for k in range(60)]})
    names = [name for _, name, _ in subject_of(random_model(), ls.task(frame)).parts()]
    assert "tuning" in names
    assert "patched" not in names


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    import pandas

    folder = save_random(tmp_path_factory.mktemp("lm") / "model", "gpt2", "next")
    texts = [f"the file is a list of value {k} and this string " * 4 for k in range(60)]
    return subject_of(ls.load(folder), ls.task(pandas.DataFrame({"text": texts})).sampled(0))


def test_windows_of_running_text_are_counted_and_not_its_texts(language):
    """A text here makes several windows, so that far fewer than 40 texts are enough for a score."""
    every = {part.name: part for part in parts()}
    assert language.windows_per_text > 2
    assert language.least(every["score"]) < 10
    assert language.least(every["score"]) < language.least(every["smaller"]) < 40
    assert language.least(every["layers"]) == 40  # whose rows are texts
    windows = language._windows(language.least(every["score"]))
    assert windows >= 8
    assert language.size(every["score"], None, 60, 2.0) == (29, 0)
    score, alike = (language.seconds(every[name], None, 50, 0, 2.0) for name in ("score", "layers"))
    assert alike < score / 2  # of whose texts only the first 16 tokens are read


def test_the_pilot_ends_after_a_long_run_and_within_its_time(language, monkeypatch):
    from layerscope.recipes import study_subject

    clock, counts = [0.0], []
    monkeypatch.setattr(study_subject.time, "monotonic", lambda: clock[0])

    def run(model, task, split, limit, max_length):
        counts.append(limit)
        clock[0] += limit * seconds

    monkeypatch.setattr(study_subject, "evaluate", run)
    seconds = 4.0
    assert language.pilot(5.0) == pytest.approx(4.0)
    assert counts == [2]
    counts.clear()
    seconds = 0.2
    assert language.pilot(18.0) == pytest.approx(0.2)
    assert counts == [2, 8]
    counts.clear()
    clock[0] = 0.0

    def opening_first(model, task, split, limit, max_length):
        counts.append(limit)
        clock[0] += limit * 0.01 + (1.0 if len(counts) == 1 else 0.0)

    monkeypatch.setattr(study_subject, "evaluate", opening_first)
    assert language.pilot(1.8) == pytest.approx(0.01)  # not the second of opening
    monkeypatch.setattr(study_subject, "evaluate", run)
    counts.clear()
    assert language.pilot(0.9) == pytest.approx(0.2)
    assert sum(counts) * 0.2 <= 0.9 + 1e-9


def test_texts_of_patches_are_counted(task):
    part = next(part for part in parts() if part.name == "patched")
    subject = subject_of(random_model(kind="classifier"), task)
    assert subject.values(None, 50, 0)["learned"] == 50
    plain = next(part for part in parts() if part.name == "cuts")
    assert subject.seconds(part, None, 1000, 0, 0.1) > subject.seconds(plain, None, 1000, 0, 0.1)


def test_a_head_over_a_vocabulary_is_counted_for_every_layer_and_span(language, task):
    """A curve runs the head on every layer, and a map on every span: beside a large vocabulary that is most of it."""
    cuts = next(part for part in parts() if part.name == "cuts")
    assert subject_of(random_model(kind="classifier"), task).head_share == 0
    assert 0 < language.head_share < 1
    depth, without = language.model.depth, copy.copy(language)
    without.__dict__["head_share"] = 0.0
    more = language.seconds(cuts, None, 100, 0, 0.1) - without.seconds(cuts, None, 100, 0, 0.1)
    assert more == pytest.approx(1.5 * depth * language.head_share * 100 * 0.1)
