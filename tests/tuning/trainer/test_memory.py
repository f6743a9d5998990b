"""What a training will take is measured on a row and on two before its first step, and refused where it is too much."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from layerscope.errors import ModelError
from layerscope.tuning import trainer
from layerscope.tuning.heal import plan_healing
from layerscope.tuning.hyperparameters import Hyperparameters
from tests.helpers.data import running_task
from tests.helpers.models import FEW_STEPS, WITHOUT_BLOCK_2, small_decoder

ROWS = SimpleNamespace(places=[[0], [1], [2]] * 8, items=[range(5), range(9), range(7)])


class Rows(SimpleNamespace):
    def __len__(self):
        return len(self.places)

    def __getitem__(self, row):
        return row


def check(monkeypatch, taken, free, **options):
    """Check a training whose steps take so much, on a GPU with so much free; the rows that were measured."""
    seen = []

    def step(wrapped, batch, device, bf16):
        seen.append(batch)
        return taken(len(batch))

    monkeypatch.setattr(trainer, "_bytes_of_step", step)
    monkeypatch.setattr(trainer, "free_on", lambda device: free)
    network = nn.Linear(1000, 1000, bias=False)
    tuned = SimpleNamespace(name="the model", device=torch.device("cuda"), network=network)
    spec = trainer.EvalSpec(list, dict)
    trainer.check_memory(network, tuned, spec, Rows(**vars(ROWS)), Hyperparameters(**{"batch": 16, **options}))
    return seen


def steps(rows):
    return 1e9 + 2e9 * rows


def test_it_is_measured_on_the_longest_rows(monkeypatch):
    assert check(monkeypatch, steps, 34e9) == [[1], [1], [1, 4]]


@pytest.mark.parametrize(("free", "fitting"), [(33e9, 15), (9.5e9, 4), (3.1e9, 1)])
def test_the_sentence_names_the_largest_batch_that_fits(monkeypatch, free, fitting):
    with pytest.raises(ModelError, match=rf"about 33\.0 GB .*batch={fitting}, .*checkpointing=True") as error:
        check(monkeypatch, steps, free)
    assert "up to 9 tokens" in str(error.value)


def test_where_no_row_fits_it_says_so_and_other_errors_pass(monkeypatch):
    def nothing_left(rows):
        raise torch.OutOfMemoryError("CUDA out of memory")

    def broken(rows):
        raise ValueError("something else")

    with pytest.raises(ModelError, match=r"more, even for single rows, .*more memory, or shorter"):
        check(monkeypatch, nothing_left, 1e9, checkpointing=True)
    with pytest.raises(ModelError, match="a GPU with more memory"):
        check(monkeypatch, steps, 2e9)
    with pytest.raises(ValueError, match="something else"):
        check(monkeypatch, broken, 1e9)


def test_what_is_saved_is_opened_again_and_must_fit(monkeypatch):
    with pytest.raises(ModelError, match=r"is opened once more .* takes 0\.0 GB beside the model, and 0\.0 GB"):
        check(monkeypatch, lambda rows: 0.0, 3e6)


@pytest.mark.gpu
@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_is_expected_is_what_a_training_takes(tmp_path, monkeypatch, checkpointing):
    model = small_decoder()
    model.network.to("cuda")
    options = {**FEW_STEPS, "steps": 2, "batch": 8, "bf16": True, "checkpointing": checkpointing}
    job = plan_healing(model, WITHOUT_BLOCK_2, running_task(), **options).job
    expected = []
    measured = trainer._bytes_of_step

    def noted(*arguments):
        expected.append(measured(*arguments))
        return expected[-1]

    monkeypatch.setattr(trainer, "_bytes_of_step", noted)
    job.train(Path(tmp_path) / "first")  # what libraries keep for good, such as the workspace of products, is there now
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    job.train(Path(tmp_path) / "second")
    taken = torch.cuda.max_memory_allocated() - before
    first, second = expected[-2:]
    assert 0.3 * taken <= first + 7 * (second - first) <= 3 * taken
    monkeypatch.setattr(trainer, "free_on", lambda device: int(first))
    with pytest.raises(ModelError, match=r"Training .* takes about|is opened once more"):
        job.train(Path(tmp_path) / "again")
