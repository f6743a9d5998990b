"""Malice: what a folder that someone sent may hold, and what its reader then does with it."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from .harness import World, Wrong, command
from .inputs import fault_of
from .poison import CODE, MARKUP, NAMES, PICKLES, Evil, poisoned


class Malice:
    """Each kind is a method that sets the folder up and gives what its reader does: open it, compare, report."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kinds: dict[str, Callable[[Random, Path], Callable[[], None]]] = {
            "record names": self._record_names,
            "record markup": self._record_markup,
            "model markup": self._model_markup,
            "data markup": self._data_markup,
            "pickle": self._pickle,
            "pickle by index": self._pickle_by_index,
            "remote code": self._remote_code,
            "object paths": self._object_paths,
            "links": self._links,
            "linked files": self._linked_files,
            "folder names": self._folder_names,
            "stray adapter": self._stray_adapter,
        }

    @property
    def canary(self) -> Path:
        """What is there only if code of the folder was run."""
        return self.world.work / "outside" / "canary"

    # Records.

    def _record(self, folder: Path) -> dict[str, Any]:
        shutil.copytree(self.world.seeds / "few-record", folder, dirs_exist_ok=True)
        return json.loads((folder / "record.json").read_text())

    def _show(self, record: Path) -> Callable[[], None]:
        import layerscope as ls

        def show() -> None:
            ls.report(record, "mine/page.html")
            ls.paper_figures(record, "mine/figures", format="svg")

        return show

    def _record_names(self, draw: Random, given: Path) -> Callable[[], None]:
        """Names of files and kinds that lead elsewhere."""
        card, name = self._record(given), self._name(draw)
        place = draw.choice(["kind", "title", "file", "table", "table name", "facet", "files", "figure title"])
        if place in ("kind", "title"):
            card[place] = name
        elif place == "file":
            card["figures"][0]["file"] = f"{name}.parquet"
        elif place == "table":
            card["tables"] = {"x": f"{name}.parquet"}
        elif place == "table name":
            card["tables"] = {name: "001-heatmap.parquet"}
        elif place == "facet":
            card["figures"][0]["facets"] = {name: name}
        elif place == "files":
            card["files"] = [name, "../outside/treasure"]
        else:
            card["figures"][0]["title"] = name
        (given / "record.json").write_text(json.dumps(card))
        return self._show(given)

    def _record_markup(self, draw: Random, given: Path) -> Callable[[], None]:
        """Markup in every text of a record, or in one."""
        card = poisoned(self._record(given), draw)
        (given / "record.json").write_text(json.dumps(card))
        return self._show(given)

    # Models and data.

    def _model(self, given: Path) -> dict[str, Any]:
        shutil.copytree(self.world.seeds / "model", given, dirs_exist_ok=True)
        return json.loads((given / "config.json").read_text())

    def _compare(self, model: Path) -> Callable[[], None]:
        """The model is opened, compared and reported, by commands."""
        task = self.world.seeds / "new-words"

        def act() -> None:
            code = command("compare", model, "--task", task, "--pool", "mean", "-o", "mine/out")
            code = code or command("report", "mine/out", "-o", "mine/page.html")
            _check(code)

        return act

    def _model_markup(self, draw: Random, given: Path) -> Callable[[], None]:
        config = self._model(given)
        text = draw.choice(MARKUP)
        config |= {"_name_or_path": text, "id2label": {"0": text, "1": "list"}, "label2id": {text: 0, "list": 1}}
        (given / "config.json").write_text(json.dumps(config))
        return self._compare(given)

    def _data_markup(self, draw: Random, given: Path) -> Callable[[], None]:
        """Markup and formulas in texts, labels and the file's name."""
        text = draw.choice([*MARKUP, "=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-1"])
        file = given / f"{draw.choice(['rows', text.replace('/', '')])}.csv"
        quoted = '"' + text.replace('"', '""') + '"'
        file.write_text("text,label\n" + "".join(f"{quoted},{quoted}\nthe list,list\n" for _ in range(8)))

        def act() -> None:
            model = self.world.seeds / "model"
            code = command("specialty", model, "--task", file, "--no-probes", "-o", "mine/out")
            code = code or command("report", "mine/out", "-o", "mine/page.html")
            _check(code)

        return act

    def _open(self, given: Path) -> Callable[[], None]:
        """Everything that a user may do with a folder that was sent."""
        import layerscope as ls

        def act() -> None:
            attempts = (ls.load, ls.Representations.load, ls.Moments.load, ls.read_record, ls.task)
            for attempt in attempts:
                if fault := fault_of(lambda attempt=attempt: attempt(str(given))):
                    raise Wrong(fault)

        return act

    def _pickle(self, draw: Random, given: Path) -> Callable[[], None]:
        """A pickle under one of the names that libraries open, with or without whole weights beside it."""
        self._model(given)
        if draw.random() < 0.5:
            (given / "model.safetensors").unlink()
        name = draw.choice(PICKLES.split())
        (given / name).write_bytes(self._evil(draw))
        if "adapter" in name:
            about = {"peft_type": "LORA", "base_model_name_or_path": str(self.world.seeds / "model"), "r": 1}
            (given / "adapter_config.json").write_text(json.dumps(about))
        return self._open(given)

    def _pickle_by_index(self, draw: Random, given: Path) -> Callable[[], None]:
        """A list of shards that names a pickle."""
        shutil.copytree(self.world.seeds / "sharded", given, dirs_exist_ok=True)
        index = json.loads((given / "model.safetensors.index.json").read_text())
        name = draw.choice(["w.bin", "w.pt", "w.safetensors", "../outside/w.bin", "../outside/w.safetensors", "w"])
        for tensor in index["weight_map"] if draw.random() < 0.5 else [draw.choice(list(index["weight_map"]))]:
            index["weight_map"][tensor] = name
        (given / name).write_bytes(self._evil(draw))
        (given / "model.safetensors.index.json").write_text(json.dumps(index))
        return self._open(given)

    def _evil(self, draw: Random) -> bytes:
        """A plain pickle, torch's archive of one, or one behind a safetensors header."""
        import torch

        plain = pickle.dumps(Evil(str(self.canary)), protocol=draw.choice([0, 2, 4]))
        kind = draw.randrange(3)
        if kind == 0:
            return plain
        if kind == 1:
            return struct.pack("<Q", 2) + b"{}" + plain
        file = io.BytesIO()
        torch.save(Evil(str(self.canary)), file)
        return file.getvalue()

    def _remote_code(self, draw: Random, given: Path) -> Callable[[], None]:
        """Code beside a checkpoint or data, and every field that asks for it."""
        config = self._model(given)
        code = CODE.format(canary=str(self.canary))
        for name in (
            "evil.py",
            "modeling_evil.py",
            "configuration_evil.py",
            f"{given.name}.py",
            "setup.py",
            "__init__.py",
        ):
            (given / name).write_text(code)
        (given / "custom_generate").mkdir()
        (given / "custom_generate" / "generate.py").write_text(code)
        mapped = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForSequenceClassification"), "evil.Evil")
        fields: dict[str, Any] = {
            "auto_map": {**mapped, "AutoTokenizer": ["evil.Evil", "evil.Evil"]},
            "custom_pipelines": {"evil": {"impl": "evil.Evil", "pt": ["AutoModel"]}},
            "quantization_config": {"quant_method": draw.choice(["evil", "bitsandbytes", "gptq", "quanto"])},
            "attn_implementation": "evil/kernel",
            "_attn_implementation": "evil/kernel:evil",
            "trust_remote_code": True,
            "model_type": draw.choice(["evil", "bert"]),
            "tokenizer_class": "Evil",
        }
        for name in draw.sample(sorted(fields), draw.randint(1, 4)):
            config[name] = fields[name]
        (given / "config.json").write_text(json.dumps(config))
        about = json.loads((given / "tokenizer_config.json").read_text())
        if draw.random() < 0.5:
            about |= {"auto_map": fields["auto_map"], "tokenizer_class": "Evil", "trust_remote_code": True}
        (given / "tokenizer_config.json").write_text(json.dumps(about))
        return self._open(given)

    def _object_paths(self, draw: Random, given: Path) -> Callable[[], None]:
        """Saved objects whose parts lie elsewhere."""
        shutil.copytree(self.world.seeds / "reps", given, dirs_exist_ok=True)
        shard = given / "shard-00000.safetensors"
        shutil.move(shard, self.world.work / "outside" / "x.safetensors")
        elsewhere = draw.choice(
            ["../outside/x.safetensors", str(self.world.work / "outside" / "x.safetensors"), "link"]
        )
        if elsewhere == "link":
            elsewhere = "shard-00000.safetensors"
            shard.symlink_to(self.world.work / "outside" / "x.safetensors")
        card = json.loads((given / "representations.json").read_text())
        (given / "representations.json").write_text(json.dumps({**card, "shards": [elsewhere]}))

        def act() -> None:
            import layerscope as ls

            try:
                ls.Representations.load(given)
            except ls.LayerscopeError:
                return
            raise Wrong("a part of it was read outside of its folder")

        return act

    def _links(self, draw: Random, given: Path) -> Callable[[], None]:
        """Links where something is going to be written."""
        out, treasure = self.world.work / "mine" / "out", self.world.work / "outside" / "treasure"
        out.mkdir()
        names = [
            "cka.parquet",
            "cka.png",
            "page.html",
            "compare-record",
            ".compare-record",
            f".cka.parquet.{os.getpid()}",
        ]
        for name in draw.sample(names, 3):
            (out / name).symlink_to(draw.choice([treasure, treasure.parent, Path("/nowhere/x")]))
        return self._compare_into(out)

    def _linked_files(self, draw: Random, given: Path) -> Callable[[], None]:
        """A model whose folder holds links to what is not its own; what is saved of it must not hold that."""
        self._model(given)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        types = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
        (given / "modules.json").write_text(json.dumps(types))
        (given / "1_Pooling").mkdir()
        (given / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 8}')
        treasure = self.world.work / "outside" / "treasure"
        names = ["1_Pooling/x", "chat_template.jinja", "vocab.x", "tokenizer.x", "additional_chat_templates"]
        for name in draw.sample(names, 2):
            (given / name).symlink_to(draw.choice([treasure, os.path.relpath(treasure, given)]))

        def act() -> None:
            import layerscope as ls

            for save in (
                lambda: ls.cut_folder(given, ls.LayerPlan([1]), "mine/disk"),
                lambda: ls.save(ls.truncate(str(given), 1), "mine/memory"),
            ):
                if fault := fault_of(save):
                    raise Wrong(fault)
            files = [path for path in Path("mine").rglob("*") if path.is_file()]
            if any(path.read_bytes() == treasure.read_bytes() for path in files):
                raise Wrong("what a link leads to was saved")

        return act

    def _compare_into(self, out: Path) -> Callable[[], None]:
        words = ["compare", self.world.seeds / "model", "--task", self.world.seeds / "new-words", "--pool", "mean"]

        def act() -> None:
            _check(command(*words, "-o", out, "--overwrite"))
            _check(command("report", out, "-o", out / "page.html"))

        return act

    def _folder_names(self, draw: Random, given: Path) -> Callable[[], None]:
        """A model in a folder of a strange name."""
        name = draw.choice([*NAMES, *MARKUP, "$(touch x)", "a;b", "a'b", 'a"b', "%s%n", "{0}", "a@b", "random:x"])
        name = name.replace("/", "").replace("\x00", "")[:200] or "x"
        folder = given / (name if name not in (".", "..") else "...")
        shutil.copytree(self.world.seeds / "model", folder)
        return self._compare(folder)

    def _stray_adapter(self, draw: Random, given: Path) -> Callable[[], None]:
        """An adapter of another base beside a whole checkpoint."""
        self._model(given)
        shutil.copytree(self.world.seeds / "training-lora" / "adapter", given, dirs_exist_ok=True)

        def act() -> None:
            import torch

            import layerscope as ls

            try:
                opened = ls.load(str(given)).network.state_dict()
            except ls.LayerscopeError:
                return
            whole = ls.load(str(self.world.seeds / "model")).network.state_dict()
            if opened.keys() != whole.keys() or not all(torch.equal(opened[k], whole[k]) for k in whole):
                raise Wrong("the adapter was applied")

        return act

    def _name(self, draw: Random) -> str:
        return draw.choice(NAMES).format(world=self.world.work)


def _check(code: int) -> None:
    """A command is done, or says in a sentence why not."""
    if code not in (0, 2, 3):
        raise Wrong(f"exit code {code}")
