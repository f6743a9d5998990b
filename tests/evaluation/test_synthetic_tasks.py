"""Synthetic tasks: that each question has the answer that it is said to have, and how models are asked."""

import re

import numpy as np
import pytest
from scipy.stats import norm
from tokenizers import decoders, normalizers

import layerscope as ls
from layerscope.evaluation import synthetic_tasks
from layerscope.evaluation.generation import GenerationOptions
from layerscope.evaluation.synthetic_tasks import TASKS, Question, answered, questions
from tests.evaluation.test_generation import plainly, text
from tests.helpers.models import language_model


def writing_model(family, **options):
    """A random model whose tokenizer puts the pieces of a word together again."""
    opened = language_model(family, **options)
    opened.tokenizer.backend_tokenizer.decoder = decoders.WordPiece()
    return opened


def solve(task, text):
    """The answer to a question, worked out from its text alone."""
    last = text.splitlines()[-1]
    if task == "addition":
        return str(sum(map(int, re.findall(r"\d+", last))))
    if task == "brackets":
        left = "".join(re.findall(r"[()\[\]{}]", last))
        before = None
        while before != left:
            before, left = left, left.replace("()", "").replace("[]", "").replace("{}", "")
        return " ".join([*left[::-1].translate(str.maketrans("([{", ")]}")), ";"])
    if task == "copying":
        return last.removeprefix("list: ").removesuffix(" copy:")
    return text.split(".")[0].split()[-1]


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("shots", [1, 6])
def test_every_question_has_its_answer(task, shots):
    asked = questions(task, 50, 0, shots)
    assert all(solve(task, each.text) == each.answer for each in asked)
    assert len({each.text for each in asked}) == 50
    if task != "last_word":  # the examples are answered rightly, too, and none is the question
        for each in asked:
            *examples, question = each.text.splitlines()
            assert len(examples) == shots
            for line in examples:
                given = next(k for k in range(len(line)) if line.endswith(f" {solve(task, line[: k + 1])}"))
                assert line[: given + 1] != question


@pytest.mark.parametrize("task", list(TASKS))
def test_the_seed_decides_the_questions_and_their_number_does_not(task):
    assert questions(task, 20, 0)[:5] == questions(task, 5, 0)
    assert questions(task, 5, 0) != questions(task, 5, 1)


@pytest.mark.parametrize(
    ("written", "answer", "right"),
    [
        (" 81\n12 + 3", "81", True),
        (" 812", "81", False),
        (" 8", "81", False),
        ("} ]);\n", "} ] ) ;", True),
        (" } ) ] ;", "} ] ) ;", False),
        (" } ] ) ) ;", "} ] ) ;", False),
        (" Dog, cat\nlist:", "dog, cat", True),
        (" dog cat", "cat, dog", False),
        ("", "81", False),
    ],
)
def test_right_is_what_begins_with_the_answer(written, answer, right):
    assert answered(written, answer) is right


def test_shares_are_those_of_a_plain_loop_with_wilsons_interval(monkeypatch):
    """Where the answer to every other question is the first word that the model writes."""
    opened = writing_model("llama", bos="adds", max_position_embeddings=400)
    options = GenerationOptions(prompts=6)
    first = opened.tokenizer.convert_tokens_to_ids("[CLS]")

    def written(question):
        ids = opened.tokenizer(question.text, add_special_tokens=False)["input_ids"]
        return opened.tokenizer.decode(plainly(opened, [first, *ids], 8), skip_special_tokens=True)

    real = synthetic_tasks.questions

    def half(task, count, seed, shots):
        asked = real(task, count, seed, shots)
        words = [re.findall(r"\w+", written(each)) if k % 2 else [] for k, each in enumerate(asked)]
        return [Question(each.text, own[0]) if len(own) > 1 else each for each, own in zip(asked, words, strict=True)]

    monkeypatch.setattr(synthetic_tasks, "questions", half)
    monkeypatch.setattr(synthetic_tasks, "TASKS", {"addition": TASKS["addition"]})
    number = synthetic_tasks.synthetic_tasks(opened, first, options)[0]
    expected = [answered(written(each), each.answer) for each in half("addition", 6, 0, 6)]
    assert 0 < number.value == np.mean(expected) < 1
    z, n, share = norm.ppf(0.975), 6, number.value
    middle, wide = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    assert (number.low, number.high) == pytest.approx(
        ((middle - wide) / (1 + z**2 / n), (middle + wide) / (1 + z**2 / n))
    )
    assert (number.n, number.rows_are, number.kind) == (6, "questions", "generation")


def test_what_does_not_fit_has_fewer_examples_and_then_a_reason():
    roomy = ls.evaluate(writing_model("gpt2", n_positions=600), text(), generate=4)
    narrow = ls.evaluate(writing_model("gpt2", n_positions=44), text(), generate={"prompts": 4, "new_tokens": 4})
    numbers = {number.metric: number for number in roomy.more}
    assert all(0 <= numbers[task].value <= 1 for task in TASKS)
    short = {number.metric: number for number in narrow.more}
    assert short["addition"].value == 0  # with fewer examples
    assert np.isnan(short["copying"].value)
    assert "do not fit into the 44 tokens" in short["copying"].interval_note
    assert "addition" in str(roomy.findings()[1])
    assert "copying" not in str(narrow.findings()[1])


def test_a_tokenizer_that_cannot_write_the_answer():
    opened = writing_model("gpt2", n_positions=600)
    opened.tokenizer.backend_tokenizer.normalizer = normalizers.Replace("7", "x")
    numbers = {number.metric: number for number in ls.evaluate(opened, text(), generate=8).more}
    assert np.isnan(numbers["addition"].value)
    assert "its tokenizer cannot write" in numbers["addition"].interval_note
    assert numbers["last_word"].value == 0
