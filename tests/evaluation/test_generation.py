"""The generation check: against a plain loop without a cache, and what it says of damage."""

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.generation import (
    GenerationOptions,
    Prompt,
    continuation,
    continued,
    measured,
    prompts_of,
    repetition,
)
from tests.helpers.data import text_frame
from tests.helpers.models import language_model

FEW = {"prompts": 5, "prompt_tokens": 16, "new_tokens": 8}


def text(count=40, **options):
    return ls.task(text_frame(count), kind="text", **options)


@torch.inference_mode()
def plainly(opened, ids, count):
    """Greedy, one prompt at a time, the whole text read anew for every token."""
    ids = list(ids)
    for _ in range(count):
        ids.append(int(opened.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[-count:]


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom"])
@pytest.mark.parametrize("bos", [None, "adds"])
def test_what_is_generated_is_that_of_a_plain_loop(family, bos):
    opened = language_model(family, bos=bos)
    opened.network.generation_config.repetition_penalty = 5.0  # settings of its own must not matter
    opened.network.generation_config.eos_token_id = 7
    kept = opened.network.generation_config
    score = ls.evaluate(opened, text(), generate=FEW)
    assert opened.network.generation_config is kept
    source, prompt_options, first = make_evaluator(opened, text()).source
    prompts = prompts_of(opened, source, prompt_options, first, GenerationOptions(**FEW))
    front = [] if first is None else [first]
    written = np.asarray([plainly(opened, [*front, *prompt.given], 8) for prompt in prompts])
    values = {name: value.mean() for name, value in measured(written, np.stack([p.follow for p in prompts])).items()}
    assert {name: score.metrics[name] for name in values} == pytest.approx(values)
    assert {number.kind for number in score.more} == {"generation"}
    assert {number.n for number in score.more} == {5}


def test_prompts_of_any_length_are_continued_as_each_is_alone():
    opened = language_model("llama")
    generator = np.random.default_rng(0)
    prompts = [generator.integers(5, 60, size=length) for length in (3, 9, 3, 17, 9)]
    together = continued(opened, prompts, 6)
    assert together.tolist() == [plainly(opened, prompt, 6) for prompt in prompts]


def test_repetition_is_the_share_of_ngrams_that_were_there_before():
    rows = np.asarray([[1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 1, 1, 1, 1, 1, 1], [1, 2, 3, 4, 1, 2, 3, 4]])
    assert repetition(rows).tolist() == pytest.approx([0, 0.8, 0.2])
    assert repetition(rows, size=2).tolist() == pytest.approx([0, 6 / 7, 3 / 7])
    grams = [tuple(rows[2, k : k + 2]) for k in range(7)]
    assert repetition(rows, size=2)[2] == pytest.approx(sum(g in grams[:k] for k, g in enumerate(grams)) / 7)


def test_a_model_that_knows_the_text_continues_it():
    follow = np.arange(12).reshape(1, 12)
    all_right = measured(follow, follow)
    assert [all_right[name][0] for name in ("continuation", "continuation_start", "continuation_exact")] == [1, 12, 1]
    other = follow.copy()
    other[0, 3] = 99
    values = measured(other, follow)
    assert values["continuation"][0] == pytest.approx(11 / 12)
    assert (values["continuation_start"][0], values["continuation_exact"][0]) == (3, 0)


def test_the_seed_decides_the_prompts_and_they_do_not_overlap():
    opened = language_model("gpt2")
    source, prompt_options, first = make_evaluator(opened, text()).source
    chosen = [
        prompts_of(opened, source, prompt_options, first, GenerationOptions(**FEW, seed=seed)) for seed in (0, 0, 1)
    ]
    given = [[tuple(prompt.given) for prompt in prompts] for prompts in chosen]
    assert given[0] == given[1] != given[2]
    every = prompts_of(opened, source, prompt_options, first, GenerationOptions(10**6, 16, 8))
    ids = opened.tokenizer("\n\n".join(source.texts), add_special_tokens=False)["input_ids"]
    joined = np.concatenate([np.concatenate([prompt.given, prompt.follow]) for prompt in every])
    assert joined.tolist() == ids[: len(joined)]


def test_short_texts_by_themselves_have_shorter_prompts():
    opened = language_model("gpt2")
    source, prompt_options, first = make_evaluator(opened, text(by_text=True)).source
    prompts = prompts_of(opened, source, prompt_options, first, GenerationOptions(100, 40, 8))
    assert {len(prompt.given) for prompt in prompts} <= {8, 16, 24, 32, 40}
    assert all(len(prompt.follow) == 8 for prompt in prompts)


def test_the_score_says_which_kind_each_number_is_and_how_sure_it_is():
    score = ls.evaluate(language_model("gpt2"), text(), generate=8, max_length=40)
    kinds = {number.metric: number.kind for number in score.numbers}
    assert kinds["perplexity"] == "perplexity"
    assert kinds["repetition"] == "generation"
    assert score.interval[0] < float(score) < score.interval[1]
    exact = next(number for number in score.more if number.metric == "continuation_exact")
    assert exact.low == 0 < exact.high < 1  # none of a few is not none at all
    assert score.provenance["settings"]["generate"]["prompts"] == 8
    assert "of the 4-grams are repeats" in str(score.findings()[0])


@pytest.mark.parametrize(
    ("generate", "said"),
    [
        (0, "prompts is 0"),
        ({"new_tokens": 3}, "at least 4"),
        ({"prompt": 3}, "no setting of the generation check 'prompt'"),
        ({"prompt_tokens": 79}, "79 tokens and 32 new ones do not fit into the 80"),
        ("many", "generate is 'many'"),
    ],
)
def test_what_cannot_be_generated(generate, said):
    with pytest.raises(ls.LayerscopeError, match=said):
        ls.evaluate(language_model("gpt2"), text(), generate=generate)


def test_too_little_text_and_other_heads():
    with pytest.raises(ls.LayerscopeError, match="no text of 40 tokens"):
        ls.evaluate(
            language_model("gpt2"), ls.task(pandas.DataFrame({"text": ["a file and"]}), kind="text"), generate=1
        )
    with pytest.raises(ls.LayerscopeError, match="continues running text"):
        ls.evaluate(language_model("bert", "masked"), text(), generate=True)


def test_prompts_know_the_text_in_which_they_begin():
    opened = language_model("gpt2")
    source, prompt_options, first = make_evaluator(opened, text()).source
    every = prompts_of(opened, source, prompt_options, first, GenerationOptions(10**6, 16, 8))
    joined = opened.tokenizer("\n\n".join(source.texts), add_special_tokens=False, return_offsets_mapping=True)
    ends = np.cumsum([len(each) + 2 for each in source.texts])
    starts = [joined["offset_mapping"][24 * k][1] - 1 for k in range(len(every))]
    assert [prompt.text for prompt in every] == np.searchsorted(ends, starts, side="right").tolist()
    source, prompt_options, first = make_evaluator(opened, text(by_text=True)).source
    alone = prompts_of(opened, source, prompt_options, first, GenerationOptions(10**6, 16, 8))
    assert all(tuple(prompt.given)[:3] in _triples(opened, source.texts[prompt.text]) for prompt in alone)


def _triples(opened, text):
    ids = opened.tokenizer(text, add_special_tokens=False)["input_ids"]
    return set(zip(ids, ids[1:], ids[2:], strict=False))


def test_prompts_of_one_text_are_resampled_together(monkeypatch):
    """Of two prompts in each of 8 texts that are alike there is as much to learn as of one."""
    opened = language_model("gpt2")
    values, halves = np.repeat(np.random.default_rng(0).random(8), 2), np.repeat(np.arange(8), 2)
    monkeypatch.setattr("layerscope.evaluation.generation.measured", lambda *_: {"repetition": values})
    found = {}
    for name, texts in {"together": halves, "alone": np.arange(16), "one": np.zeros(16, int)}.items():
        prompts = [Prompt(np.arange(8), np.arange(4), k) for k in texts]
        monkeypatch.setattr("layerscope.evaluation.generation.prompts_of", lambda *_, prompts=prompts: prompts)
        source, prompt_options, first = make_evaluator(opened, text()).source
        (found[name],) = continuation(opened, source, prompt_options, first, GenerationOptions(16, 8, 4))
    width = {name: number.high - number.low for name, number in found.items()}
    assert 1.2 * width["alone"] < width["together"] < 1.7 * width["alone"]
    assert width["one"] == width["alone"]
    assert found["together"].interval_note == found["alone"].interval_note == ""
    assert found["one"].interval_note.startswith("over prompts, since all of them are of one text")


def test_memory_that_runs_out_is_not_told_as_the_model_s_fault(monkeypatch):
    model = ls.load(language_model("gpt2"))

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(type(model.network), "generate", full)
    texts = ls.task(text_frame(), kind="text")
    with pytest.raises(InputError, match=r"ls\.evaluate was not possible: memory ran out .* take fewer rows"):
        ls.evaluate(model, texts, generate=4)
