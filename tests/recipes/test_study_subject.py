"""What a study is of, and what its parts read in the time there is."""

import pytest

import layerscope as ls
from layerscope.recipes.study_subject import Subject, parts
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model

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
