"""Attention matrices head by head: a changed head changes what it should, and nothing else."""

import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.similarity.attention.weight_similarity import head_matrices
from tests.helpers.models import FAMILIES, random_network, word_tokenizer

HEADS, HEAD = 4, 1


def model(family):
    return ls.load(random_network(family, "encoder"), tokenizer=word_tokenizer(family))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("the file is a list of value s\nnot an object but a string\n")
    return ls.task(path)


@pytest.mark.parametrize("which", ["query", "key"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_changed_query_or_key_changes_its_head_alone(family, which, corpus):
    subject = model(family)
    before = ls.attentions(subject, corpus)
    view = head_matrices(subject, 1, which)
    assert view.shape[1:] == (8, 32)
    view[HEAD] += torch.randn(view[HEAD].shape, generator=torch.Generator().manual_seed(0))
    after = ls.attentions(subject, corpus)
    group = HEADS // len(view)  # queries that share a key
    changed = [not torch.equal(before[1][0][h], after[1][0][h]) for h in range(HEADS)]
    assert changed == [h // group == HEAD for h in range(HEADS)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_of_a_head_without_values_does_not_matter(family, corpus):
    subject = model(family)
    values, outputs = (head_matrices(subject, 1, which) for which in ("value", "output"))
    group = len(outputs) // len(values)
    values[HEAD] = 0.0
    expected = ls.extract(subject, corpus, pool="mean", store=False)[1]
    before = outputs.clone()
    outputs[HEAD * group : (HEAD + 1) * group] += 1.0
    torch.testing.assert_close(ls.extract(subject, corpus, pool="mean", store=False)[1], expected)
    outputs.copy_(before)
    outputs[0] += torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(ls.extract(subject, corpus, pool="mean", store=False)[1], expected, atol=1e-3)


def test_refused_by_name(monkeypatch):
    subject = model("bert")
    with pytest.raises(InputError, match="no attention matrix 'querry'"):
        head_matrices(subject, 1, "querry")
    from dataclasses import replace

    unknown = replace(subject, architecture=replace(subject.architecture, family="other", projections=None))
    with pytest.raises(ModelError, match=r"\(other\) keeps its attention matrices is not known; it is for bert, "):
        ls.compare_weights(unknown, unknown)
