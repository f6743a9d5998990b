"""A command is made of the public functions that it calls, one per mode.

Its options, their types, defaults and help texts come from the signatures and docstrings of those functions, of
`ls.load` where they take models and of `ls.task` where they take a task. A command declares only what belongs to the
terminal: where to write, how to print, what to save.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from layerscope.cli.console import ASKED, DATA, Command, answered, answering
from layerscope.cli.record import OVERWRITE, claim
from layerscope.cli.signature import Parameter, function
from layerscope.cutting.plan import integers
from layerscope.drawing.captions import listed
from layerscope.errors import InputError

if TYPE_CHECKING:
    from layerscope.data import Task
    from layerscope.models import Model

MODEL, TASK = "ModelSource", "TaskSource"  # the annotations of parameters that take a model, or a task
# Why parameters of `ls.task` and `ls.load` are no options; what a command leaves out besides stands in its file.
NOT_OF_TASK = {
    "source": "it is --task",
    "regression": "it is guessed from the labels",
    "metric": "the functions that score have it themselves",
}
NOT_OF_LOAD = {
    "source": "it is the argument",
    "tokenizer": "a checkpoint brings its own",
    "name": "it is --names",
    "stateful": "it makes states depend on what ran before",
}
NAMES = (
    "What the models are called in tables and figures, in their order, with commas; if not given, the shortest names "
    "that tell them apart."
)
_ASKED = ("bos", "stride", "by_text", "mask_seed", "embedding")  # how a network is asked, not what the data holds


def names(text: str, kind: str) -> list[str]:
    """`a,b, c`: names with commas between them, at least one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError(f"No {kind} was named in {text!r}; write one, or several with commas.")
    return parts


def read(parameter: Parameter, text: Any) -> Any:
    """What a text on the command line means to a parameter of that annotation; other values are meant as they are."""
    types = parameter.types
    if not isinstance(text, str):
        return text
    if "Sequence[int]" in types:
        if "str" in types and not text[:1].isdigit():
            return text  # a word such as `all`
        return int(text) if "int" in types and text.isdigit() else integers(text)
    if "Sequence[float]" in types:
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            raise InputError(
                f"{parameter.option} is {text!r}; write a number, or several with commas: 0.5,0.25,0.1."
            ) from None
        return numbers[0] if "float" in types and len(numbers) == 1 else numbers
    if any(each.startswith("Sequence[") for each in types) and not {MODEL, TASK} & types:
        return names(text, parameter.name.removesuffix("s").replace("_", " "))
    return text


class Given:
    """What was given on the command line: values by the names of the functions' parameters, None where nothing was."""

    def __init__(
        self, modes: Mapping[str, str], values: Mapping[str, Any], float32: Callable[[Given], bool] | None = None
    ) -> None:
        self._modes, self._float32 = modes, float32
        # A seed is that of random weights only where no function has one of its own.
        taken = {name for called in modes.values() for name in function(called).parameters}
        self._of_load = [name for name in function("load").parameters if name not in {*NOT_OF_LOAD, *taken}]
        self._values = {name: value for name, value in values.items() if value is not None}
        self._opened: dict[str, Model] = {}

    def __getitem__(self, name: str) -> Any:
        return self._values.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def value(self, name: str) -> Any:
        """What was given for a parameter, read as its annotation says."""
        found = next(p for called in self._modes.values() if (p := function(called).parameters.get(name)) is not None)
        return read(found, self[name])

    def require_task(self) -> None:
        """Raise InputError where no task was named, in a mode that needs one."""
        if "task" not in self:
            raise InputError("Name the texts with --task: a task of `layerscope tasks`, a file, a folder or a hub id.")

    @cached_property
    def task(self) -> Task:
        """The task that `--task` and the options about its columns name."""
        return self.open_task(self["task"])

    def open_task(self, source: str) -> Task:
        """A data set that is read as the options about columns say."""
        import layerscope as ls

        options = {p.name: read(p, self[p.name]) for p in columns().values() if p.name in self}
        if isinstance(options.get("choices"), list) and len(options["choices"]) == 1:
            options["choices"] = options["choices"][0]  # one column holds lists
        opened = ls.task(source, **options)
        opened.words = ("--task", source, *self.columns)  # so that what is found can be gone on with
        return opened

    @property
    def columns(self) -> list[str]:
        """What was given about the data set's columns, as it is written on a command line."""
        words: list[str] = []
        for name, parameter in columns().items():
            value = self[name]
            if value is False:
                words.append(f"--no-{name.replace('_', '-')}")
            elif value is not None:
                words += [parameter.option] if value is True else [parameter.option, str(value)]
        return words

    def open_model(self, source: str) -> Model:
        """A model, opened once, in the float type and on the device that were asked for."""
        import layerscope as ls

        if source not in self._opened:
            options = {name: self[name] for name in self._of_load if name in self}
            if self._float32 is not None and self._float32(self):
                options.setdefault("dtype", "float32")
            self._opened[source] = ls.load(source, name=self._called.get(source), **options)
        return self._opened[source]

    def open_models(self, sources: Sequence[str]) -> list[Model]:
        """The models that a command names as a list of its own, with the names that were given for them."""
        called = self._names(sources) if "names" in self else [""] * len(sources)
        opened = [self.open_model(source) for source in sources]
        # One model can be given twice, under two names.
        return [replace(model, shown_as=name) for model, name in zip(opened, called, strict=True)]

    @cached_property
    def _called(self) -> dict[str, str]:
        """The names that were given for the models among the functions' parameters."""
        parameters = {p.name: p for called in self._modes.values() for p in function(called).parameters.values()}
        named = [self[name] for name, p in parameters.items() if name in self and MODEL in p.types]
        many = [self[name] for name, p in parameters.items() if name in self and f"Sequence[{MODEL}]" in p.types]
        sources = [*named, *(source for each in many for source in each)]
        return dict(zip(sources, self._names(sources), strict=True)) if "names" in self and sources else {}

    def _names(self, sources: Sequence[str]) -> list[str]:
        """What `--names` says, which must be as many as there are models."""
        called = names(self["names"], "model")
        if len(called) != len(sources):
            raise InputError(
                f"--names gives {listed(called)}, and the command has {len(sources)} models ({listed(sources)}); give "
                "one name for each, in their order."
            )
        return called

    def label(self, name: str) -> str:
        """What the model that was given for a parameter is called in titles, without opening it."""
        from layerscope.models.sources import short_names

        source = self[name]
        if source is None:
            return ""
        models = [self[each] for each in ("source", "target") if each in self] or [source]
        return self._called.get(source) or dict(zip(models, short_names(models), strict=True))[source]

    @property
    def model(self) -> Model:
        """The model that the command names."""
        return self.open_model(self["model"])

    def arguments(self, name: str, **changes: Any) -> dict[str, Any]:
        """The arguments of a public function: what was given of them, read and opened, and what the command changes.

        Raises InputError where something was given that belongs to another mode of the command.
        """
        called = function(name)
        self.check(name, *changes)
        needed = {key for key, parameter in called.parameters.items() if parameter.default is None}
        made = {key: value for key, value in changes.items() if value is not None or key in needed}
        values = {**self._values, **made}
        plain = {
            key: values[key] if key in made else read(parameter, values[key])
            for key, parameter in called.parameters.items()
            if key in values
        }
        for key, value in plain.items():  # data first: a model takes longer to open
            if TASK in called.parameters[key].types and key not in made:
                plain[key] = self.task if key == "task" else self.open_task(value)
        for key, value in plain.items():
            if key in made:
                continue
            if MODEL in called.parameters[key].types:
                plain[key] = self.open_model(value)
            elif f"Sequence[{MODEL}]" in called.parameters[key].types:
                plain[key] = [self.open_model(each) for each in value]
        return plain

    def call(self, name: str, **changes: Any) -> Any:
        """What the public function of that name gives for what was given."""
        import layerscope as ls

        return getattr(ls, name)(**self.arguments(name, **changes))

    def check(self, name: str, *changed: str) -> None:
        """Raise InputError where something was given that belongs to another mode than that of the named function."""
        called = function(name)
        for mode, other in self._modes.items():
            for key, parameter in function(other).parameters.items():
                if key in self and key not in called.parameters and key not in changed:
                    raise InputError(f"{parameter.option} is for {mode}; give that, or leave {parameter.option} out.")


def columns() -> dict[str, Parameter]:
    """The parameters of `ls.task` that are options of every command with a task."""
    return {name: p for name, p in function("task").parameters.items() if name not in NOT_OF_TASK}


def options_of(modes: Mapping[str, str], left_out: Mapping[str, str], own: Sequence[str]) -> dict[str, Any]:
    """The options and arguments of some functions as typer takes them, by name; `own` are the command's own names."""
    found: dict[str, tuple[Any, Any]] = {}
    every = [function(name) for name in modes.values()]
    for mode, called in zip(modes, every, strict=True):
        for name, parameter in called.parameters.items():
            if name in left_out or name in own or name in found:
                continue
            shared = all(name in other.parameters for other in every)
            needed = all(name in other.parameters and other.parameters[name].default is None for other in every)
            found[name] = _typed(parameter, "" if shared else f"With {mode}: ", needed)
    types = {each for called in every for p in called.parameters.values() for each in p.types}
    if {MODEL, f"Sequence[{MODEL}]"} & types:
        for name, parameter in function("load").parameters.items():
            if name not in {**NOT_OF_LOAD, **found} and name not in own:
                found[name] = _typed(parameter)
        if "names" not in found:
            found["names"] = (str | None, typer.Option(None, "--names", help=NAMES))
    if TASK in types:
        for name, parameter in columns().items():
            if name not in found and name not in own:
                found[name] = _typed(parameter)
                found[name][1].rich_help_panel = ASKED if name in _ASKED else DATA
    return found


def _typed(parameter: Parameter, before: str = "", needed: bool = False) -> tuple[Any, Any]:
    """The type and the declaration of a parameter on the command line. What is not given stays None."""
    text = parameter.help
    types = {each for each in parameter.types if not each.startswith("Mapping[")}  # those are for Python alone
    if before:
        text = f"{before}{text[:1].lower() if text[1:2].islower() or text[1:2] == ' ' else text[:1]}{text[1:]}"
    if f"Sequence[{MODEL}]" in types and needed:
        return list[str], typer.Argument(help=text)
    if needed and TASK not in types:
        return str, typer.Argument(help=text)
    kind: Any = str
    if types == {"bool"}:
        kind = bool
    elif types <= {"bool", "int"}:
        kind = int
    elif types <= {"int", "float"}:
        kind = float
    default = parameter.default
    plain = default is not None and default not in ("None", "False", "()")
    shown = None if not plain or kind is bool else _shown(str(default))
    flags = [parameter.option]
    if kind is bool and default != "False":
        flags = [f"{parameter.option}/--no-{parameter.option[2:]}"]
    if parameter.name == "task" and needed:
        return str, typer.Option(..., *flags, help=text)
    return kind | None, typer.Option(None, *flags, help=text, show_default=shown or False)


def _shown(default: str) -> str | None:
    """A default as it is written on a command line; None where the source names no plain value."""
    try:
        value = ast.literal_eval(default)
    except ValueError:  # a constant of another module, which the help text describes
        return None
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class DerivedCommand(Command):
    """A command whose options are derived when they are asked for: the list of all commands needs their names alone."""

    def __init__(self, name: str, text: str, panel: str, build: Callable[[], Command]) -> None:
        super().__init__(name=name, help=text, rich_help_panel=panel, rich_markup_mode="markdown")
        self._build = build
        for part in ("params", "callback", "epilog"):  # which come from what is built
            vars(self).pop(part, None)

    def __getattr__(self, name: str) -> Any:
        if name not in _DERIVED:
            raise AttributeError(f"a command has no attribute {name!r}")
        vars(self).update({part: getattr(whole, part) for whole in [self._build()] for part in _DERIVED})
        return vars(self)[name]


_DERIVED = ("params", "callback", "epilog", "modes", "left_out", "derived")


def command(
    modes: str | Mapping[str, str],
    *,
    panel: str,
    examples: Sequence[str],
    left_out: Mapping[str, str] | None = None,
    notes: str = "",
    float32: Callable[[Given], bool] | None = None,
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function `run(given, ...)`, whose other parameters belong to the terminal.

    `modes` is the public function that it calls, or one function per mode: `{"--curve": "truncation_curve"}`.
    `left_out` says which parameters of those functions are no options, and why. `float32` says of what was given
    whether models open in float32 where no type is asked for, since their weights themselves are trained. The command
    has the name of `run`, and is described by its docstring.
    """
    table = {"": modes} if isinstance(modes, str) else dict(modes)

    def build(run: Callable[..., None], name: str) -> Command:
        own, hints = inspect.signature(run).parameters, get_type_hints(run)
        derived = options_of(table, left_out or {}, [key.rstrip("_") for key in own])
        parameters = []
        for key, parameter in own.items():
            if key == "given":
                parameters += [
                    inspect.Parameter(each, parameter.KEYWORD_ONLY, default=declared, annotation=kind)
                    for each, (kind, declared) in derived.items()
                ]
            else:
                parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[key]))
            if key == "out" and "text" in derived:  # a command with a task leaves a record there
                parameters.append(
                    inspect.Parameter("overwrite", parameter.KEYWORD_ONLY, default=OVERWRITE, annotation=bool)
                )

        def entry(**values: Any) -> None:
            if "overwrite" in values:
                claim(name, values, values.pop("overwrite"))
            with answering(name, values):
                given = Given(table, {each: values.pop(each) for each in derived}, float32)
                run(given, **values)

        entry.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        entry.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        entry.__doc__, entry.__name__ = run.__doc__, name
        return _built(entry, name, panel, _epilog(table, examples, notes), (table, dict(left_out or {}), set(derived)))

    def make(run: Callable[..., None]) -> Command:
        name = run.__name__.rstrip("_")
        return DerivedCommand(name, inspect.getdoc(run) or "", panel, lambda: build(run, name))

    return make


def _epilog(modes: Mapping[str, str], examples: Sequence[str], notes: str) -> str:
    """The end of a help text: examples, and the same calls in Python."""
    calls = [f"`{function(name).call}`" + (f" ({mode})" if mode else "") for mode, name in modes.items()]
    shown = "  \n".join(f"`{example}`" for example in examples)
    return f"Example:  {shown}\n\n{notes and notes + chr(10) * 2}In Python:  {', '.join(calls)}"


def _built(entry: Callable[..., None], name: str, panel: str, epilog: str, derived: Any) -> Command:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    app.command(name, cls=Command, epilog=epilog, rich_help_panel=panel)(entry)
    built: Any = typer.main.get_command(app)
    built.modes, built.left_out, built.derived = derived
    return built


def plain_command(panel: str, *examples: str) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function that declares all its options itself."""

    def make(run: Callable[..., None]) -> Command:
        epilog = "Example:  " + "  \n".join(f"`{example}`" for example in examples)
        name = run.__name__.rstrip("_")
        return _built(answered(name)(run), name, panel, epilog, ({}, {}, set()))

    return make


def option_of(name: str, parameter: str) -> Any:
    """The declaration of one parameter of a public function, for a command that declares its options itself."""
    return _typed(function(name).parameters[parameter])[1]
