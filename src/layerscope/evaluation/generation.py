"""Generation check: a causal language model continues held-out text, which is compared with what it wrote.

Choices by likelihood, and even perplexity, hide damage that shows as soon as a model goes on from its own words.
Prompts are cut out of the running text; `synthetic_tasks` has questions that are generated. Generation is greedy,
whatever the model's own settings say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from layerscope.data import Examples
from layerscope.data.task import PromptOptions
from layerscope.errors import InputError, ModelError, check_seed, choose, device_fault, first_line, whole
from layerscope.evaluation.perplexity import BETWEEN, not_over_texts, texts_at, tokens_of
from layerscope.evaluation.score import GENERATION, Number
from layerscope.models import Model
from layerscope.models.architecture import evaluating
from layerscope.models.load import quiet
from layerscope.progress import progress
from layerscope.resampling import mean_interval, shuffled

NGRAM = 4
_PROMPT = 64  # tokens of a prompt, where nothing else is asked for
_STEP = 8  # prompts of short texts have a multiple of this many tokens, so that several go together
_AT_ONCE = 32  # prompts


@dataclass(frozen=True)
class GenerationOptions:
    """Settings of a generation check: how many prompts are continued, how long they are, and by how many tokens."""

    prompts: int = 64
    prompt_tokens: int | None = None  # 64, or what the model has room for
    new_tokens: int = 32
    seed: int = 0  # decides which stretches of the text are prompts

    def __post_init__(self) -> None:
        for name, least in (("prompts", 1), ("prompt_tokens", 1), ("new_tokens", NGRAM)):
            value = getattr(self, name)
            if name == "prompt_tokens" and value is None:
                continue
            if not whole(value) or value < least:
                raise InputError(f"{name} is {value!r}; a generation check needs a whole number, at least {least}.")
        check_seed(self.seed)

    @classmethod
    def asked(cls, generate: Any) -> GenerationOptions | None:
        """Return the settings that `generate=` stands for, which may be none, or the usual ones."""
        if generate is None or generate is False:
            return None
        if isinstance(generate, cls):
            return generate
        if generate is True:
            return cls()
        if isinstance(generate, Mapping):
            for name in generate:
                choose("setting of the generation check", str(name), [field.name for field in fields(cls)])
            return cls(**generate)
        return cls(prompts=generate)


@dataclass(frozen=True)
class Prompt:
    """The tokens of a prompt, and those that follow them in the text."""

    given: np.ndarray
    follow: np.ndarray
    text: int = 0  # the number of the text in which it begins; -1: not known


def continuation(
    model: Model, examples: Examples, prompt_options: PromptOptions, bos: int | None, settings: GenerationOptions
) -> tuple[Number, ...]:
    """Return the numbers of a generation check on running text, with their intervals."""
    prompts = prompts_of(model, examples, prompt_options, bos, settings)
    follow = np.stack([prompt.follow for prompt in prompts])
    given = [prompt.given if bos is None else np.concatenate([[bos], prompt.given]) for prompt in prompts]
    written = continued(model, given, settings.new_tokens, f"{model.name} continues {examples.task}")
    # Prompts of one text are alike, so that whole texts are resampled.
    texts = np.asarray([prompt.text for prompt in prompts])
    over = not_over_texts(texts, "prompts")
    common: dict[str, Any] = {"task": examples.task, "split": examples.split, "n": len(prompts), "kind": GENERATION}
    numbers = []
    for name, values in measured(written, follow).items():
        low, high = _interval(name, values, np.arange(len(prompts)) if over else texts)
        mean = float(values.mean())
        why = "all prompts give the same, which says nothing of their spread" if np.isnan(low) else over
        number = Number(metric=name, value=mean, low=low, high=high, rows_are="prompts", interval_note=why, **common)
        numbers.append(number)
    return tuple(numbers)


def measured(written: np.ndarray, follow: np.ndarray) -> dict[str, np.ndarray]:
    """Return (n,) values of each number from (n, k) generated tokens and the (n, k) tokens that follow in the text."""
    same = written == follow
    return {
        "continuation": same.mean(axis=1),
        "continuation_start": np.cumprod(same, axis=1).sum(axis=1).astype(float),
        "continuation_exact": same.all(axis=1).astype(float),
        "repetition": repetition(written),
        "repetition_text": repetition(follow),
    }


def repetition(tokens: np.ndarray, size: int = NGRAM) -> np.ndarray:
    """Return (n,) the share of n-grams that stood in their row before (seq-rep-n, Welleck et al. 2020)."""
    grams = np.lib.stride_tricks.sliding_window_view(tokens, size, axis=1)
    return np.asarray([1 - len(np.unique(row, axis=0)) / len(row) for row in grams])


def prompts_of(
    model: Model, examples: Examples, prompt_options: PromptOptions, bos: int | None, settings: GenerationOptions
) -> list[Prompt]:
    """Return stretches of the running text that do not overlap, chosen at random, in the order of the text."""
    room = (model.positions or sys.maxsize) - (bos is not None)
    given = settings.prompt_tokens or max(1, min(_PROMPT, room - settings.new_tokens))
    if given + settings.new_tokens > room:
        raise InputError(
            f"A prompt of {given} tokens and {settings.new_tokens} new ones do not fit into the "
            f"{room} that {model.name} reads; ask for fewer (prompt_tokens, new_tokens)."
        )
    stretches: list[Prompt] = []
    every = list(range(len(examples)))
    for group in [[k] for k in every] if prompt_options.by_text else [every]:
        ids, ends = tokens_of(model, BETWEEN.join(examples.texts[k] for k in group))
        placed = list(_stretches(ids, given, settings.new_tokens))
        texts = texts_at(examples, group, None if ends is None else [int(ends[start]) - 1 for start, _ in placed])
        stretches += [replace(prompt, text=k) for (_, prompt), k in zip(placed, texts, strict=False)]
    if not stretches:
        raise InputError(
            f"{examples.task} ({examples.split}) has no text of {_STEP + settings.new_tokens} tokens to cut a prompt "
            "and its continuation from; give more text, or ask for fewer new tokens (new_tokens)."
        )
    chosen = np.sort(shuffled(np.arange(len(stretches)), seed=settings.seed)[: settings.prompts])
    return [stretches[k] for k in chosen]


def _stretches(ids: np.ndarray, given: int, new: int) -> Iterator[tuple[int, Prompt]]:
    """Yield the prompts of a text one after another with their places; a text that is too short gives a shorter one."""
    size = given + new
    for start in range(0, len(ids) - size + 1, size):
        yield start, Prompt(ids[start : start + given], ids[start + given : start + size])
    left = min((len(ids) - new) // _STEP * _STEP, given)
    if len(ids) < size and left > 0:
        yield len(ids) - left - new, Prompt(ids[-left - new : -new], ids[-new:])


def continued(model: Model, prompts: Sequence[np.ndarray], count: int, title: str = "") -> np.ndarray:
    """Return (n, count) the tokens by which a model continues each prompt, greedily and with its cache on.

    Prompts of one length go together, so that none is padded: padding changes the states of some families.
    """
    network = model.network
    if not getattr(network, "can_generate", lambda: False)():
        raise ModelError(f"{model.name} ({type(network).__name__}) cannot generate text in transformers.")
    written = np.empty((len(prompts), count), np.int64)
    lengths = np.asarray([len(prompt) for prompt in prompts])
    with progress(title, len(prompts), "prompts") as advance, _greedily(network, count) as generate:
        for length in np.unique(lengths):
            places = np.flatnonzero(lengths == length)
            for start in range(0, len(places), _AT_ONCE):
                part = places[start : start + _AT_ONCE]
                ids = torch.as_tensor(np.stack([prompts[k] for k in part]), device=model.device)
                try:
                    written[part] = generate(ids)[:, length:].cpu().numpy()
                except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
                    if device_fault(error) is not None:
                        raise
                    raise ModelError(
                        f"{model.name} ({type(network).__name__}) could not go on from a prompt: {first_line(error)}."
                    ) from error
                advance(len(part))
    return written


@contextmanager
def _greedily(network: Any, count: int) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """Yield the network's `generate`, made greedy and for so many tokens, whatever its own settings are."""
    from transformers import GenerationConfig

    original = getattr(network, "generation_config", None)
    settings = GenerationConfig(do_sample=False, num_beams=1, max_new_tokens=count, use_cache=True)

    def generate(ids: torch.Tensor) -> torch.Tensor:
        return network.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings)

    # transformers fills gaps in the settings from the network's own, such as penalties of repetition and lengths.
    network.generation_config = GenerationConfig()
    try:
        with torch.inference_mode(), evaluating(network), quiet():
            yield generate
    finally:
        network.generation_config = original


def _interval(name: str, values: np.ndarray, texts: np.ndarray) -> tuple[float, float]:
    """Return a 95% interval of the mean: the bootstrap over texts; Wilson's for a share of prompts of a text each."""
    if name == "continuation_exact" and len(np.unique(texts)) == len(texts):
        return proportion_interval(values)
    return mean_interval(values, texts)


def proportion_interval(right: np.ndarray) -> tuple[float, float]:
    """Return Wilson's 95% interval of the share of ones among (n,) ones and zeros."""
    from scipy.stats import binomtest

    low, high = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
    return float(low), float(high)
