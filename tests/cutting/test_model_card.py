"""Model cards: what the hub reads of them, and that their code opens the checkpoint."""

import json
import math
import re
from pathlib import Path

import pandas
import pytest
import transformers
from huggingface_hub import ModelCard

import layerscope as ls
from layerscope.cutting.model_card import PLACE
from tests.helpers.checkpoints import save_sentence_transformer
from tests.helpers.data import text_frame
from tests.helpers.models import language_model, random_network, save_random, word_tokenizer

LICENCE = "---\nlicense: other\nlicense_name: ours\nlicense_link: https://example.org/ours\n---\n# A model\n"


def opened_by_its_code(folder):
    """What the code on a card opens."""
    code = re.search("```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
    names = {}
    exec(code.replace(PLACE, str(folder)), names)
    return names


def test_scores_stand_on_the_card_as_the_hub_reads_them(tmp_path):
    opened = language_model("gpt2")
    smaller = ls.skip(opened, 2, 3)
    score = ls.evaluate(smaller, ls.task(text_frame(60), kind="text"), generate=6, max_length=40)
    folder = ls.save(smaller, tmp_path / "small", scores=score)
    data = ModelCard.load(folder / "README.md").data
    found = {result.metric_type: result for result in data.eval_results}
    answered = [number.metric for number in score.more if not math.isnan(number.value)]
    assert set(found) == {"perplexity", *answered}
    assert found["perplexity"].metric_value == float(score)
    assert found["perplexity"].metric_args["n"] == score.n
    assert found["perplexity"].metric_args["interval_95"] == list(score.interval)
    assert (found["perplexity"].dataset_name, found["perplexity"].dataset_split) == ("table", "all")
    assert found["repetition"].metric_args["kind"] == "generation"
    assert found["repetition"].metric_args["n"] == 6
    assert data.pipeline_tag == "text-generation"
    assert data.to_dict()["layerscope"]["steps"][0]["keep"] == [1, 4]


def test_a_score_without_an_interval_has_the_reason(tmp_path):
    model = language_model("gpt2")
    alone = ls.evaluate(model, ls.task(text_frame(2, most=4), kind="text"))
    assert "| none: one window alone cannot be resampled |" in _card(ls.save(model, tmp_path / "one", scores=alone))
    bare = ls.Score(alone, metric="nll", metrics={"nll": 5.0}, n=1, majority=0.5, provenance=alone.provenance)
    folder = ls.save(model, tmp_path / "bare", scores=bare)
    assert "| none: none was measured |" in _card(folder)
    assert json.loads((folder / "layerscope.json").read_text())["scores"][0]["interval_note"] == "none was measured"


def _card(folder):
    return (folder / "README.md").read_text()


def test_base_licence_and_plan_go_from_model_to_model(tmp_path):
    base = Path(save_random(tmp_path / "models--org--base" / "snapshots" / ("ab" * 20), "bert", labels=2))
    (base / "README.md").write_text(LICENCE)
    first = ls.save(ls.skip(base, 2, 3), tmp_path / "first")
    second = ls.cut_folder(first, ls.LayerPlan([1]), tmp_path / "second")
    for folder in (first, second):
        data = ModelCard.load(folder / "README.md").data.to_dict()
        assert data["base_model"] == "org/base"
        assert (data["license"], data["license_name"]) == ("other", "ours")
        assert data["layerscope"]["base"] == {"name": "org/base", "revision": "ab" * 20}
        assert "its card states the licence other (ours)" in (folder / "README.md").read_text()
    assert [step["keep"] for step in data["layerscope"]["steps"]] == [[1, 4], [1]]


def test_no_licence_is_guessed_and_no_place_on_this_machine_is_told(tmp_path):
    base = Path(save_random(tmp_path / "base", "bert", labels=2))
    folder = ls.save(ls.truncate(base, 2), tmp_path / "small")
    card = (folder / "README.md").read_text()
    assert "license" not in ModelCard(card).data.to_dict()
    assert "no card beside it states a licence" in card
    assert str(tmp_path) not in card + (folder / "layerscope.json").read_text()
    (base / "README.md").write_text("---\nlicense: [broken\n---\n")
    assert "license" not in json.loads((ls.save(base, tmp_path / "again") / "layerscope.json").read_text())["base"]


def test_a_training_is_told_and_stays_told_when_the_model_is_cut(tmp_path):
    base = save_random(tmp_path / "base", "bert", "encoder")
    rows = pandas.DataFrame({"text": ["the file", "a list"] * 30, "label": ["file", "list"] * 30})
    cut = ls.save(ls.skip(base, 2, 2), tmp_path / "cut")
    ls.tune(str(cut), rows, out=tmp_path / "tuned", max_steps=2, batch=4, max_length=16, strategy="top-1")
    smaller = ls.save(ls.truncate(tmp_path / "tuned", 2), tmp_path / "smaller")
    for folder in (tmp_path / "tuned" / "checkpoint", smaller):
        card = (folder / "README.md").read_text()
        assert "- Trained by `finetune`, strategy (3, 3, 3), on 48 rows of `table` (all): " in card
        assert "steps 2" in card
        assert "blocks 2 were removed;" in card
        data = ModelCard(card).data.to_dict()
        assert data["layerscope"]["training"][0]["method"] == "finetune"
        assert data["layerscope"]["base"] == {"name": "base"}
    data = ModelCard.load(tmp_path / "tuned" / "checkpoint" / "README.md").data
    (result,) = data.eval_results
    assert result.metric_args["n"] == 12
    assert result.metric_args["kind"] == "classes"


@pytest.mark.parametrize(
    ("family", "kind", "opener"),
    [
        ("bert", "classifier", "AutoModelForSequenceClassification"),
        ("gpt2", "next", "AutoModelForCausalLM"),
        ("bert", "masked", "AutoModelForMaskedLM"),
        ("bert", "encoder", "AutoModel"),
    ],
)
def test_the_code_on_a_card_opens_the_checkpoint(family, kind, opener, tmp_path):
    options = {"labels": 2} if kind == "classifier" else {"kind": kind}
    opened = ls.load(random_network(family, **options), tokenizer=word_tokenizer(family))
    folder = ls.save(ls.truncate(opened, 2), tmp_path / "small")
    names = opened_by_its_code(folder)
    assert type(names["model"]) is type(opened.network)
    assert names["model"].config.num_hidden_layers == 2
    assert isinstance(names["tokenizer"], transformers.PreTrainedTokenizerBase)
    assert f"{opener}.from_pretrained" in (folder / "README.md").read_text()


def test_an_embedding_model_opens_with_its_own_library(tmp_path):
    folder = ls.save(save_sentence_transformer(tmp_path / "embedder"), tmp_path / "small")
    data = ModelCard.load(folder / "README.md").data
    assert (data.library_name, data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert opened_by_its_code(folder)["model"].encode(["a file"]).shape[0] == 1
