"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from layerscope.cli.helptext import DATA, RUNNING
from layerscope.cli.record import OVERWRITE, claim
from layerscope.drawing.words import listed
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.data import Task


class Data:
    """What names a data set on the command line."""

    task = typer.Option(..., "--task", help="A task of the registry (layerscope tasks), a file, a folder or a hub id.")
    task_or_none = typer.Option(
        None, "--task", help="A task (layerscope tasks), a file, a folder or a hub id; --save alone needs none."
    )
    split = typer.Option(None, "--split", help="Which split to use: validation if there is one, else the only one.")


@dataclass(frozen=True)
class Columns:
    """Where a data set keeps what: the options that `with_columns` gives a command."""

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    labels: str | None = None
    choices: str | None = None
    tags: str | None = None
    kind: str | None = None
    config: str | None = None
    words_by: str | None = None
    skip_bad: bool = False
    max_field: int | None = None
    bos: bool | None = None
    stride: int | None = None
    by_text: bool = False
    mask_seed: int = 0
    embedding: str | None = None

    def words(self) -> list[str]:
        """What was given of these, as it is written on a command line."""
        words = []
        for name, value in asdict(self).items():
            option = f"--{name.replace('_', '-')}"
            if value is False and name == "bos":
                words.append("--no-bos")
            words += [option] if value is True else [option, str(value)] if value else []
        return words

    def open(self, source: str) -> Task:
        """The task that `--task` and these options name."""
        import layerscope as ls
        from layerscope.data.formats import MAX_FIELD

        choices: Any = self.choices
        if choices is not None and "," in choices:
            choices = choices.split(",")
        return ls.task(
            source,
            text=self.text,
            text_pair=self.text_pair,
            label=self.label,
            labels=None if self.labels is None else names(self.labels, "class"),
            choices=choices,
            tags=self.tags,
            kind=self.kind,
            config=self.config,
            words_by=self.words_by,
            skip_bad=self.skip_bad,
            max_field=MAX_FIELD if self.max_field is None else self.max_field,
            bos=self.bos,
            stride=self.stride,
            by_text=self.by_text,
            mask_seed=self.mask_seed,
            embedding=self.embedding,
        )


COLUMNS = Columns()
_OPTIONS = {
    "text": typer.Option(None, "--text", help="The column with the text."),
    "text_pair": typer.Option(None, "--text-pair", help="The column with the second text."),
    "label": typer.Option(None, "--label", help="The column with the label."),
    "labels": typer.Option(
        None, "--labels", help="The classes in the order of the head's outputs, where it calls them LABEL_0, ..: a,b,c."
    ),
    "choices": typer.Option(None, "--choices", help="The column with lists of choices, or several columns: a,b,c,d."),
    "tags": typer.Option(None, "--tags", help="The column with lists of tags, one tag for each word."),
    "kind": typer.Option(None, "--kind", help="`text` reads the task as running text, for language models."),
    "config": typer.Option(None, "--config", help="The configuration of a hub data set."),
    "words_by": typer.Option(
        None,
        "--words-by",
        help="How texts are split into words: whitespace (the default), or a regular expression for a word.",
    ),
    "skip_bad": typer.Option(False, "--skip-bad", help="Leave bad rows out and count them instead of stopping."),
    "max_field": typer.Option(
        None, "--max-field", help="How many characters a field of a file may have; 10 million if not given."
    ),
    "bos": typer.Option(
        None,
        "--bos/--no-bos",
        help="Running text: begin each window with the tokenizer's BOS; as the tokenizer does if not given.",
    ),
    "stride": typer.Option(
        None, "--stride", help="Running text: windows overlap, each beginning N tokens after the last."
    ),
    "by_text": typer.Option(False, "--by-text", help="Running text: read each text by itself instead of joining them."),
    "mask_seed": typer.Option(0, "--mask-seed", help="Masked language models: decides which tokens are masked."),
    "embedding": typer.Option(
        None, "--embedding", help="Scored pairs, with a bare encoder: mean (the default), cls or last token."
    ),
}

_ASKED = ("bos", "stride", "by_text", "mask_seed", "embedding")
for _field, _option in _OPTIONS.items():
    _option.rich_help_panel = RUNNING if _field in _ASKED else DATA


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of `Columns`, in the place of its parameter `columns`.

    A command with `--out` gets `--overwrite` too, and is stopped before it works where it would write over its own.
    """
    signature, hints = inspect.signature(command), get_type_hints(command)
    types = get_type_hints(Columns)
    parameters = []
    for name, parameter in signature.parameters.items():
        if name == "columns":
            parameters += [
                inspect.Parameter(field, parameter.kind, default=option, annotation=types[field])
                for field, option in _OPTIONS.items()
            ]
        else:
            parameters.append(parameter.replace(annotation=hints[name]))
        if name == "out":
            parameters.append(inspect.Parameter("overwrite", parameter.kind, default=OVERWRITE, annotation=bool))

    @wraps(command)
    def run(**given: Any) -> None:
        columns = Columns(**{field: given.pop(field) for field in _OPTIONS})
        if "overwrite" in given:
            claim(command.__name__, given, given.pop("overwrite"))
        command(columns=columns, **given)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


class Given:
    """Which model, on how much data, where."""

    model = typer.Argument(help="A checkpoint whose head can answer the task: a folder, a hub id or id@revision.")
    any_model = typer.Argument(
        help="A checkpoint: a folder, a hub id, id@revision, a GGUF file, demo:minilm, demo:smollm2, garden:NAME, or "
        "random: and one of these."
    )
    limit = typer.Option(None, "--limit", help="Use only the first N examples.")
    max_length = typer.Option(
        None, "--max-length", help="Longest text in tokens; the model's limit, at most 512 (running text: 2048)."
    )
    all_rows = typer.Option(False, "--all-rows", help="Also score the rows that the model learned from.")
    device = typer.Option(
        None, "--device", help="cpu, cuda, cuda:1, or auto for all GPUs; the first GPU, if there is one, by default."
    )
    dtype = typer.Option("float32", "--dtype", help="The float type to open weights in: float32, bfloat16, float16.")
    engine = typer.Option(
        "local", "--engine", help="Where the fits run, each a job: local, processes:N, ray or ray:ADDRESS."
    )
    save = typer.Option(None, "--save", help="Save the smaller model in this folder, reopened and compared.")


class Publishing:
    """Where what is saved is put on the hub; `cli/publishing.py` acts on it."""

    push_to_hub = typer.Option(
        None, "--push-to-hub", help="Upload what is saved to this repository on the hub (org/name), private by default."
    )
    public = typer.Option(False, "--public", help="With --push-to-hub: everyone may read it.")


def names(text: str, kind: str) -> list[str]:
    """`a,b, c`: names with commas between them, at least one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError(f"No {kind} was named in {text!r}; write one, or several with commas.")
    return parts


def aligner_options(methods: list[str] | None, start: str, pad: bool = False) -> dict[str, dict[str, Any]]:
    """The options of alignment methods that `--start` and `--pad` stand for; an error where no method has them."""
    wanted: dict[str, Any] = ({"start": start} if start != "linear" else {}) | ({"pad": True} if pad else {})
    if not wanted:
        return {}

    from layerscope.alignment.methods import with_option

    options: dict[str, dict[str, Any]] = {}
    for option, value in wanted.items():
        able = with_option(option)
        chosen = [name for name in able if methods is None or name in methods]
        if not chosen:
            said = f"--{option}" if value is True else f"--{option} {value}"
            raise InputError(f"{said} is for {listed(able)}, and only {listed(methods or ())} was asked for.")
        for name in chosen:
            options.setdefault(name, {})[option] = value
    return options


def shares(text: str) -> list[float]:
    """`0.5,0.25,0.1`."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{text!r} is not a list of shares; write 0.5,0.25,0.1.") from None


def integers(text: str) -> list[int]:
    """`0,3,6` or `0-6` (inclusive) or both."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"{text!r} is not a list of numbers; write 0,3,6 or 0-6.")
        if dash and int(last) < int(first):
            raise InputError(f"{part.strip()!r} runs backwards; write {last}-{first}.")
        numbers += range(int(first), int(last if dash else first) + 1)
    return numbers
