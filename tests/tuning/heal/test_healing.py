"""`ls.heal`: what it trains, what it leaves, and what it refuses before any training."""

import numpy as np
import pytest
import torch
import transformers

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.tuning.heal import plan_healing
from tests.helpers.checkpoints import numbers_in
from tests.helpers.data import running_task, text_frame, three_class_task
from tests.helpers.models import (
    FEW_STEPS,
    WITHOUT_BLOCK_2,
    small_classifier,
    small_decoder,
    small_encoder,
    small_masked,
)


def test_a_cut_language_model_is_healed_merged_and_saved(tmp_path):
    model, task = small_decoder(), running_task()
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    healing = ls.heal(model, WITHOUT_BLOCK_2, task, out=tmp_path / "healed", **{**FEW_STEPS, "steps": 12})
    scores = healing.scores
    assert scores["healed"] < 0.9 * scores["cut"]
    assert scores["uncut"] == pytest.approx(float(ls.evaluate(model, task, max_length=16)))
    assert scores["cut"] == pytest.approx(float(ls.evaluate(ls.cut(model, WITHOUT_BLOCK_2), task, max_length=16)))
    assert scores["healed"] == pytest.approx(float(ls.evaluate(healing.model, task, max_length=16)))
    assert healing.score == scores["healed"]
    assert type(plan_healing(model, WITHOUT_BLOCK_2, task, seed=np.int64(3), **FEW_STEPS).job.seed) is int
    assert all(torch.equal(before[name], value) for name, value in model.network.state_dict().items())
    opened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "healed")
    assert opened.config.num_hidden_layers == 2
    assert not [name for name, _ in opened.named_parameters() if "lora" in name]
    changed = [n for n, p in opened.named_parameters() if not torch.equal(p, before.get(n.replace("s.1.", "s.2."), p))]
    assert {name.split(".")[-2] for name in changed} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }
    again = ls.heal(model, WITHOUT_BLOCK_2, task, **{**FEW_STEPS, "steps": 12})
    assert again.path == healing.path  # nothing is trained twice
    assert ls.load(tmp_path / "healed").depth == 2
    with pytest.raises(InputError, match="learned from all"):
        ls.evaluate(ls.load(tmp_path / "healed"), ls.task(text_frame(40, most=20), kind="text"))


def test_weights_of_16_bits_are_healed_by_updates_in_float32_alone():
    model = small_decoder()
    half = ls.load(model.network.bfloat16(), tokenizer=model.tokenizer, dtype=torch.bfloat16)
    healing = ls.heal(half, WITHOUT_BLOCK_2, running_task(), **FEW_STEPS)
    assert ls.load(healing.model).network.dtype == torch.bfloat16
    with pytest.raises(ModelError, match="are open in bfloat16, where healing goes wrong"):
        ls.heal(half, WITHOUT_BLOCK_2, running_task(), method="finetune", **FEW_STEPS)


def test_a_healing_is_scored_by_the_metric_that_was_asked_for():
    asked = plan_healing(small_decoder(), WITHOUT_BLOCK_2, running_task(), metric="nll", **FEW_STEPS).job
    usual = plan_healing(small_decoder(), WITHOUT_BLOCK_2, running_task(), **FEW_STEPS).job
    assert (asked.objective.metric, usual.objective.metric) == ("nll", "perplexity")
    assert asked.key != usual.key
    with pytest.raises(InputError, match="whose answers are scored by perplexity, nll, bits_per_byte"):
        plan_healing(small_decoder(), WITHOUT_BLOCK_2, running_task(), metric="accuracy", **FEW_STEPS)


def test_a_model_that_was_cut_before_is_healed_with_the_uncut_one_beside_it():
    model = small_decoder()
    smaller = ls.cut(model, WITHOUT_BLOCK_2)
    given = plan_healing(model, smaller, running_task(), distill=True, **FEW_STEPS).job
    planned = plan_healing(model, WITHOUT_BLOCK_2, running_task(), distill=True, **FEW_STEPS).job
    assert given.key == planned.key
    alone = plan_healing(smaller, None, running_task(), **FEW_STEPS).job
    assert alone.uncut is None
    assert alone.key != plan_healing(model, smaller, running_task(), **FEW_STEPS).job.key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "adapter"}, "What adapter adds cannot be merged .* heal with finetune and lora"),
        ({"method": "prefix"}, "What prefix adds cannot be merged"),
        ({"mix": 0.5}, r"mix is 0.5, and nothing teaches: give distill=True \(--distill\)"),
        ({"keep_teacher": 4}, "keep_teacher is 4, and nothing teaches"),
        ({"distill": True, "mix": 0.0}, "mix is 0.0; it is the teacher's share"),
        ({"distill": True, "mix": 1.5}, "above 0 and at most 1"),
        ({"distance": "far"}, "There is no distance 'far'"),
        ({"distill": True, "distance": "mse"}, "distance is mse, which is between embeddings, and .* gives none"),
        ({"strategy": "(1, 1, 1)"}, "puts the head on layer 1, and a cut model has it on its last, 2"),
        ({"strategy": "head-only"}, "tunes no block"),
        ({"max_steps": 3}, "Both steps and max_steps were given"),
        ({"epochs": 2}, "Both epochs and max_steps were given"),
        ({"learning_rate": [1e-3, 1e-4]}, "One learning rate is needed"),
        ({"max_length": 2000}, "reads at most 80 tokens"),
        ({"report_to": "nobody"}, "There is no tracker 'nobody'"),
        ({"report_to": "wandb"}, "The tracker wandb is not installed; install it with: pip install wandb"),
        ({"seed": -1}, "seed is -1"),
        ({"loss": "x"}, "There is no training option 'loss'"),
    ],
)
def test_what_cannot_be_is_said_before_any_training(options, words):
    with pytest.raises(InputError, match=words):
        plan_healing(small_decoder(), WITHOUT_BLOCK_2, running_task(), **{**FEW_STEPS, **options})


def test_what_is_not_known_of_a_cut_model_is_asked_for():
    model = small_decoder()
    model.network.name_or_path = "somewhere/llama"
    with pytest.raises(InputError, match=r"give it as teacher= .* It was cut from LlamaForCausalLM"):
        plan_healing(ls.cut(model, WITHOUT_BLOCK_2), None, running_task(), distill=True, **FEW_STEPS)
    with pytest.raises(InputError, match="removes no block"):
        plan_healing(model, ls.LayerPlan([1, 2, 3]), running_task(), **FEW_STEPS)
    with pytest.raises(InputError, match="embeddings have the teacher alone"):
        plan_healing(small_encoder(), WITHOUT_BLOCK_2, three_class_task(False), mix=0.5)
    with pytest.raises(InputError, match="keep_teacher keeps the likeliest of many outputs"):
        plan_healing(small_classifier(), WITHOUT_BLOCK_2, three_class_task(), distill=True, keep_teacher=2)


def test_what_suits_running_text_and_what_suits_labels():
    text = plan_healing(small_decoder(), WITHOUT_BLOCK_2, running_task()).job.hyperparameters
    assert (text.max_steps, text.batch, text.max_length, text.learning_rate) == (300, 16, 80, 1e-3)
    assert (text.schedule, text.evaluate_every, text.bf16) == ("cosine", 60, False)
    short = plan_healing(small_classifier(), WITHOUT_BLOCK_2, three_class_task(), method="finetune").job.hyperparameters
    assert (short.epochs, short.max_steps, short.learning_rate, short.evaluate_every) == (3, None, 3e-5, None)


KINDS = {
    "distilled": (small_decoder, running_task, {"distill": True, "steps": 12}),
    "kept": (small_decoder, running_task, {"distill": True, "keep_teacher": 8, "steps": 12}),
    "masked": (small_masked, running_task, {"steps": 12}),
    "labels": (small_classifier, three_class_task, {"epochs": 8, "steps": None}),
    "logits": (small_classifier, lambda: three_class_task(False), {"epochs": 8, "steps": None, "distill": True}),
    "embeddings": (small_encoder, lambda: three_class_task(False), {"epochs": 8, "steps": None, "learning_rate": 1e-3}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_head_is_healed(kind):
    make, task, options = KINDS[kind]
    healing = ls.heal(make(), WITHOUT_BLOCK_2, task(), **{**FEW_STEPS, **options})
    assert healing.outcome["loss"] < healing.epochs[0]["loss"] or len(healing.epochs) == 1
    assert healing.outcome["loss"] == min(entry["loss"] for entry in healing.epochs)
    before, after = healing.scores["cut"], healing.scores["healed"]
    assert after < before if healing.metric in ("perplexity", "nll") else after >= before
    if kind == "kept":
        assert "8 likeliest outputs of the teacher" in str(healing.findings()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"method": "finetune", "strategy": "(L, L, L)"}, {"strategy": "(L, L, L)"}])
def test_frozen_blocks_run_once_and_change_nothing(options):
    few = {**FEW_STEPS, "steps": None, "epochs": 3, **options}
    model, task = small_decoder(), running_task()
    kept, plain = (ls.heal(model, WITHOUT_BLOCK_2, task, cache=cache, **few) for cache in (True, False))
    assert (kept.cached, plain.cached) == (True, False)
    assert kept.scores == pytest.approx(plain.scores, rel=1e-4)
    before = dict(ls.cut(small_decoder(), WITHOUT_BLOCK_2).named_parameters())
    changed = {name for name, value in kept.model.named_parameters() if not torch.equal(before[name], value)}
    assert all("layers.1." in name or name == "lm_head.weight" for name in changed)
    assert ("lm_head.weight" in changed) == ("method" in options)


@pytest.mark.slow
def test_a_head_that_is_the_embeddings_is_trained_as_both():
    few = {**FEW_STEPS, "steps": None, "epochs": 2}
    model = small_decoder(tie_word_embeddings=True)
    healing = ls.heal(model, WITHOUT_BLOCK_2, running_task(), method="finetune", strategy="(L, L, L)", **few)
    assert not healing.cached  # no layer stays as it was
    network = healing.model
    assert network.lm_head.weight.data_ptr() == network.get_input_embeddings().weight.data_ptr()
    assert healing.scores["healed"] < healing.scores["cut"]


@pytest.mark.parametrize("method", ["lora", "finetune"])
def test_the_parameters_are_those_of_the_saved_model(method, tmp_path):
    options = {**FEW_STEPS, "steps": 1, "method": method, "out": tmp_path / "healed"}
    healing = ls.heal(small_decoder(), WITHOUT_BLOCK_2, running_task(), **options)
    assert healing.parameters == numbers_in(tmp_path / "healed")
    assert healing.parameters == ls.describe(str(tmp_path / "healed")).facts["parameters"]
    assert f"the healed model has {healing.parameters:,} parameters" in healing.findings()[0].text
