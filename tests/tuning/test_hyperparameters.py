"""The papers' numbers, and changes to them."""

import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.registry import METHODS
from layerscope.tuning.hyperparameters import Hyperparameters, hyperparameters
from layerscope.tuning.method import method_of


def chosen(strategy, preset, method="finetune", task="", **options):
    """The hyperparameters of a strategy on 12 blocks where l* is 7."""
    asked = ls.Strategy.parse(strategy)
    return hyperparameters(preset, asked.resolve(12, 7), method_of(method), task, 12, **options)


def test_presets_hold_the_papers_numbers():
    assert chosen("full", "phang2021").max_steps == 10_000
    assert (chosen("full", "wu2020").batch, chosen("full", "wu2020").rates) == (8, (5e-5,))
    assert chosen("full", "xie2022").rates == (1e-6, 5e-6, 8e-6, 1e-5, 2e-5)
    assert chosen("(l*+1, L, L)", "xie2022").rates == (1e-6, 3e-6, 1e-5, 3e-5)
    assert chosen("(1, l*, l*)", "xie2022").rates == (5e-6, 1e-5, 5e-5, 1e-4)
    assert chosen("(l*-1, l*, L)", "xie2022", "adapter").rates == (3e-5, 1e-4, 3e-4)
    assert chosen("full", "xie2022", learning_rate=1e-3).rates == (1e-3,)
    assert chosen("full", "phang2021", epochs=2).max_steps is None


@pytest.mark.parametrize("method", ["finetune", "adapter"])
@pytest.mark.parametrize(
    ("first", "second"),
    [("full", "(1, 12, 12)"), ("top-12", "full"), ("(l*-6, L, L)", "full"), ("(1, l*, l*)", "(l*-9, 7, 7)")],
)
def test_one_strategy_has_one_set_of_rates_and_epochs_however_it_is_written(first, second, method):
    """Xie et al. 2022, tables 4 and 5, counted by hand: 5, 5, 4 and 4 rates to tune, 3 each for adapters."""
    assert chosen(first, "xie2022", method, "mnli") == chosen(second, "xie2022", method, "mnli")
    counts = [len(chosen(s, "xie2022").rates) for s in ("full", "top-3", "(1, l*, l*)", "(l*+1, L, L)")]
    assert counts == [5, 5, 4, 4]
    assert {len(chosen(s, "xie2022", "adapter").rates) for s in ("full", "top-3", "(1, l*, l*)")} == {3}


@pytest.mark.parametrize("method", ["finetune", "adapter"])
@pytest.mark.parametrize("best", range(1, 12))
def test_numbers_decide_the_rates_and_not_l_star(method, best):
    """Every way to write (bottom, 12, 12), with l* or without: up to three blocks as the baselines have, or more."""
    sets = {
        "finetune": ((8e-6, 1e-5, 2e-5, 3e-5, 5e-5), (1e-6, 3e-6, 1e-5, 3e-5)),
        "adapter": ((3e-5, 1e-4, 3e-4), (1e-5, 3e-5, 1e-4)),
    }
    bottom = best + 1
    for text in (
        "(l*+1, L, L)",
        f"({bottom}, 12, 12)",
        f"top-{12 - best}",
        f"freeze-bottom-{best}",
        f"(L-{11 - best}, L, L)",
    ):
        resolved = ls.Strategy.parse(text).resolve(12, best)
        assert (resolved.bottom, resolved.top, resolved.head) == (bottom, 12, 12)
        rates = hyperparameters("xie2022", resolved, method_of(method), "sst2", 12).rates
        assert rates == sets[method][bottom < 10], text


@pytest.mark.parametrize("task", ["mnli", "qqp", "mnli@hub"])
def test_full_fine_tuning_on_the_large_tasks_takes_half_the_epochs(task):
    """Xie et al. 2022, appendix B: 10 epochs for full fine-tuning on MNLI and QQP, 20 for all others."""
    assert chosen("full", "xie2022", task=task).epochs == chosen("(1, L, L)", "xie2022", task=task).epochs == 10
    assert chosen("(l*+1, L, L)", "xie2022", task=task).epochs == 20
    assert chosen("full", "xie2022", "adapter", task=task).epochs == 20
    assert chosen("full", "xie2022", task="sst2").epochs == 20
    assert chosen("full", "xie2022", task=task, epochs=3).epochs == 3
    assert chosen("full", None, task=task).epochs == 3


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_one_of_the_papers_sets_of_rates(method):
    assert chosen("full", "xie2022", method).rates


def test_changes_that_are_none_are_not_given():
    assert chosen("full", None, epochs=None, batch=4) == Hyperparameters(batch=4)
    with pytest.raises(InputError, match="max_length is 2"):
        chosen("full", None, max_length=2)


@pytest.mark.parametrize("name", ["cache_limit", "train_limit", "validation_limit"])
def test_what_does_not_change_the_result_is_in_no_key(name):
    assert Hyperparameters(**{name: 7}).spec() == Hyperparameters().spec()
    assert Hyperparameters(batch=7).spec() != Hyperparameters().spec()


@pytest.mark.parametrize("name", ["epochs", "warmup", "weight_decay", "adam_epsilon"])
def test_numbers_are_finite(name):
    for value in (float("inf"), float("nan")):
        with pytest.raises(InputError, match=f"^The training option {name} is {value}: .*finite"):
            chosen("full", None, **{name: value})


@pytest.mark.parametrize("rates", [[], (), [float("inf")], [0.0]])
def test_there_is_a_learning_rate_above_0(rates):
    with pytest.raises(InputError, match=r"^(There is no learning rate|A learning rate is .*); it must be above 0"):
        chosen("full", None, learning_rate=rates)
