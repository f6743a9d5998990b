"""The seam: methods are found by their files, say all that others need to know, and are named nowhere else."""

import re
from pathlib import Path

import pytest

import layerscope as ls
import layerscope.tuning
from layerscope.errors import InputError
from layerscope.tuning.method import method_of, possible
from layerscope.tuning.methods.finetune import Finetune
from tests.helpers.models import QUICK, random_model

ROOM = Path(layerscope.tuning.__file__).parent


def test_nothing_outside_a_methods_file_asks_for_its_name():
    asked = re.compile(r"""\.name (==|!=|in|not in)|== ["'](finetune|adapter|lora|prefix)["']""")
    for path in ROOM.glob("*.py"):
        assert not asked.search(path.read_text(encoding="utf-8")), path


def test_sizes():
    assert [method_of(name).size for name in ("finetune", "adapter", "lora", "prefix")] == [None, 256, 8, 16]
    assert method_of("lora", 3).spec() == {"name": "lora", "size": 3}
    with pytest.raises(InputError, match="size is 8, and finetune has none; it belongs to adapter, lora and prefix"):
        method_of("finetune", 8)
    with pytest.raises(InputError, match="size is 0; the number of virtual tokens must be at least 1"):
        method_of("prefix", 0)
    with pytest.raises(InputError, match=r"size is 2\.5; the rank of LoRA must be at least 1, and a whole number"):
        method_of("lora", 2.5)


def test_what_cannot_be_is_left_out_with_a_note(caplog):
    kept = possible(random_model(), ["full", "(l*+1, L, L)", "head-only"], 4, method_of("lora"))
    assert {text: str(strategy) for text, strategy in kept.items()} == {"full": "(1, 4, 4)"}
    assert "(l*+1, L, L) with lora is left out: " in caplog.text
    assert "head-only with lora is left out: " in caplog.text


class Biases(Finetune):
    """A method that nothing has heard of."""

    name = "biases"

    def _prepare(self, model, strategy, embeddings, seed):
        network = super()._prepare(model, strategy, embeddings, seed)
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and name.endswith("bias"))
        return network


def test_a_new_method_is_one_class(task):
    """Trained, saved, compared, costed and studied, with the presets' rates."""
    training = ls.tune(random_model(), task, strategy="(3, 4, 4)", method=Biases(), **QUICK)
    cost = ls.training_cost(random_model(), task, "(3, 4, 4)", Biases()).row
    assert (
        training.trainable == cost["trainable"] < ls.training_cost(random_model(), task, "(3, 4, 4)").row["trainable"]
    )
    assert training.frame["method"].tolist() == ["biases"]
    study = ls.strategy_study(random_model(), task, ["(3, 4, 4)"], [Biases()], seeds=(0,), **QUICK)
    assert study.trainings[0].trainings[0].path == training.path
