"""Small texts, tables, tasks and rows, and searches whose answers are made up."""

from __future__ import annotations

import random
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas
import torch

import layerscope as ls
from layerscope.alignment.aligner import options_of
from layerscope.alignment.neural_maps import random_couplings
from layerscope.cutting.search import LayerDistances, Search, usual_sizes
from layerscope.data import Examples
from layerscope.store import keys_of

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]


def three_class_frame(count, seed):
    """Texts whose class is a word that stands in them."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    texts = [" ".join([*generator.choice(WORDS[3:], size=generator.integers(1, 7)), WORDS[k]]) for k in labels]
    return pandas.DataFrame({"text": texts, "label": labels})


def labelled_frame(count=40):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(1, 12))) for _ in range(count)]
    return pandas.DataFrame({"text": texts, "label": np.arange(count) % 3})


LABELLED_TEXTS = {"text": ["a file", "the list of an object", "not this value", "return"] * 4, "label": [0, 1] * 8}


def labelled_task():
    return ls.task(pandas.DataFrame(LABELLED_TEXTS))


def extraction_key(opened):
    """The keys that an extraction of the few labelled texts asks for."""
    return keys_of(lambda: ls.extract(opened, labelled_task()))


@cache
def unlabelled_task():
    return ls.task(
        {"train": two_class_frame(20, 0)[["text"]], "validation": two_class_frame(12, 1)[["text"]]}, kind="text"
    )


def two_class_frame(count, seed):
    """Texts whose class is the word that they end with."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, count)
    texts = [" ".join([*generator.choice(WORDS[2:], size=generator.integers(1, 7)), WORDS[k]]) for k in labels]
    return pandas.DataFrame({"text": texts, "label": labels})


@cache
def two_class_task(seed=0, metric=None):
    return ls.task(
        {
            "train": two_class_frame(60, seed),
            "validation": two_class_frame(48, seed + 1),
            "test": two_class_frame(44, seed + 2),
        },
        metric=metric,
    )


@cache
def random_reps(seed=0):
    draw = np.random.default_rng(seed).normal
    return ls.Representations.from_arrays([draw(size=(60, 4)), draw(size=(60, 4))], np.arange(60) % 2)


def random_texts(count=12, seed=0, least=1, most=25):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=generator.integers(least, most))) for _ in range(count)]


def text_frame(count=12, **options):
    return pandas.DataFrame({"text": random_texts(count, **options)})


def running_task(count=40, held=10):
    """Running text with a split to learn from and one to hold out."""
    return ls.task({"train": text_frame(count, most=20), "validation": text_frame(held, seed=1)}, kind="text")


def three_class_task(labels=True):
    """Short texts of three classes, or the same without their labels."""
    parts = {"train": three_class_frame(32, 0), "validation": three_class_frame(16, 1)}
    return ls.task(parts if labels else {name: part[["text"]] for name, part in parts.items()})


def scored_pairs(count=24):
    """Pairs of texts with a number."""
    texts = random_texts(2 * count, most=8)
    return pandas.DataFrame({"a": texts[:count], "b": texts[count:], "score": [k % 6 + 0.5 for k in range(count)]})


def some_examples(count: int = 12) -> Examples:
    """Texts of different lengths, with labels."""
    draw = np.random.default_rng(0)
    words = np.asarray(["the", "cat", "sat", "on", "a", "mat", "and", "one", "dog", "ran", "far", "away", "from", "it"])
    texts = [" ".join(draw.choice(words, size=draw.integers(1, 9))) for _ in range(count)]
    return Examples("own", "all", texts, np.arange(count), labels=np.arange(count) % 2, label_names=("no", "yes"))


REVIEWS = [("good film", "pos"), ("bad film", "neg"), ('it said "no", twice', "neg"), ("fine\nbut long", "pos")]


def write_table(path, rows=REVIEWS, header=("text", "label")):
    frame = pandas.DataFrame(rows, columns=list(header))
    kind = path.name.removesuffix(".gz").split(".")[-1]
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "tsv":
        frame.replace("\n", " ", regex=True).to_csv(path, index=False, sep="\t", quoting=3, escapechar="\\")
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return path


KNOWN_WIDTH, KNOWN_ROWS = 16, 4000
EXACT, LEARNED = 1e-10, 0.01  # relative error on held-out rows, below which a map counts as found


def uneven_rows(n=300, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) @ np.diag(np.linspace(0.5, 3, d)) + np.arange(d)


def noisy_pair(n=300, d=6, e=6, noise=0.3):
    x = uneven_rows(n, d)
    generator = np.random.default_rng(1)
    return x, x @ generator.normal(size=(d, e)) + noise * generator.normal(size=(n, e)) - 2


def quick_options(method):
    """Options under which a method that is trained takes a moment."""
    return {"steps": 60} if "steps" in options_of(method) else {}


def known_maps():
    """X, and Y of an orthogonal map, of any linear map, of a random invertible network."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(KNOWN_ROWS + 1000, KNOWN_WIDTH, generator=generator)
    matrix = torch.randn(KNOWN_WIDTH, KNOWN_WIDTH, generator=generator)
    turn = torch.linalg.qr(matrix)[0]
    with torch.no_grad():
        return x, {"orthogonal": x @ turn, "linear": x @ matrix, "inn": random_couplings(KNOWN_WIDTH, 64, 3)(x)}


def relative_error(truth, method, **options):
    """The error of a method on held-out rows of a known map, and the aligner."""
    x, images = known_maps()
    y = images[truth]
    aligner = ls.align(x[:KNOWN_ROWS], y[:KNOWN_ROWS], method=method, **options)
    return aligner.error(x[KNOWN_ROWS:], y[KNOWN_ROWS:])["relative"], aligner


def plain_nu(x, labels, weighting="class"):
    """Equation 3 as it stands."""
    classes = np.unique(labels)
    groups = [x[labels == c] for c in classes]
    means = np.stack([g.mean(axis=0) for g in groups])
    if weighting == "class":
        within = np.mean([np.cov(g.T, bias=True) for g in groups], axis=0)
        centre = means.mean(axis=0)
    else:
        within = sum(len(g) * np.cov(g.T, bias=True) for g in groups) / len(x)
        centre = x.mean(axis=0)
    between = (means - centre).T @ (means - centre) / len(classes)
    return np.trace(within @ np.linalg.pinv(between, rcond=1e-10, hermitian=True)) / len(classes)


def class_rows(n, d, sizes, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(sizes)), [int(n * s) for s in sizes]))
    centres = generator.normal(size=(len(sizes), d))
    return centres[labels] + generator.normal(size=(len(labels), d)) * np.linspace(0.5, 3, d) + 2, labels


class MadeUpSearch(Search):
    """A search without a model: `worth(plan)` says what a plan is worth, and `asked` keeps what was evaluated."""

    def __init__(self, depth, sizes=None, *, worth=None, cosine=None, angular=None, **options):
        evaluator = SimpleNamespace(model=SimpleNamespace(depth=depth))
        super().__init__(evaluator, np.arange(8), usual_sizes(depth) if sizes is None else tuple(sizes), **options)
        made = {"worth": worth, "asked": [], "distances": LayerDistances(cosine, angular, 1)}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    def worths(self, plans, title):
        self.asked.extend(plans)
        return [self.worth(plan) for plan in plans]


def removed_blocks(plans, depth):
    """The blocks that each plan leaves out."""
    return [plan.removed(depth) for plan in plans]


GARDEN_LENGTH = 24
GARDEN_SIZES = {
    "bert": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "roberta": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "albert": {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "electra": {"embedding_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "gpt2": {"n_embd": 32, "n_layer": 2},
    "xlnet": {"d_model": 32, "n_layer": 2, "d_inner": 64},
    "deberta": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "pooler_hidden_size": 32},
}


def animal_articles(articles: int, seed: int = 0) -> str:
    """Articles about one animal each, so that a word tells of the next ones."""
    draw = random.Random(seed)
    animals = ["otter", "heron", "badger", "newt", "stoat", "plover", "vole", "kite"]
    does = ["eats small fish", "sleeps by the river", "digs a deep hole", "sings in the morning", "hides from rain"]
    written = []
    for k in range(articles):
        animal = draw.choice(animals)
        lines = [f"The {animal} of place {k} {draw.choice(does)}, and the {animal} {draw.choice(does)}." for _ in "abc"]
        written.append("\n".join(lines))
    return "\n\n".join(written) + "\n"
