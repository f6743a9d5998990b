"""What the methods that come from peft share: seeded adapters, and the head trained and saved whole."""

import pytest
import torch

import layerscope as ls
from layerscope.models.architecture import head_modules
from layerscope.registry import METHODS
from layerscope.tuning.methods.lora import Lora
from layerscope.tuning.peft import PeftMethod, head_names
from tests.helpers.models import FAMILIES, QUICK, random_model


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_is_named_by_its_last_names(family):
    opened = random_model(family, "classifier")
    names = head_names(opened)
    paths = head_modules(opened.network, opened.architecture)
    assert names == sorted(set(names))
    assert {path.split(".")[-1] for path in paths} == set(names)


def test_which_methods_come_from_peft():
    assert [name for name in METHODS if issubclass(METHODS[name], PeftMethod)] == ["lora", "prefix"]


def test_an_adapter_is_of_its_seed_and_leaves_the_random_state_alone():
    strategy = ls.Strategy.parse("full").resolve(4)
    models = [random_model(kind="classifier") for _ in range(3)]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    def weights(opened, seed):
        network = Lora(2)._prepare(opened, strategy, False, seed)
        return torch.cat([p.flatten() for name, p in network.named_parameters() if "lora_A" in name])

    one, same, other = (weights(opened, seed) for opened, seed in zip(models, (0, 0, 1), strict=True))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_adapter_is_saved_in_pefts_own_format(task):
    from peft import PeftConfig

    training = ls.tune(random_model(), task, method="lora", size=2, **QUICK)
    config = PeftConfig.from_pretrained(str(training.path / "adapter"))
    assert config.r == 2
    assert (training.path / "adapter" / "adapter_model.safetensors").is_file()
