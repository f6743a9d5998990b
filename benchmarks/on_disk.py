"""Peak memory of `ls.cut_folder` on a checkpoint in many files, against cutting it in memory and saving that.

Run with: python benchmarks/on_disk.py [--gigabytes 8] [--naive] [--where FOLDER] [--format json]

What counts is anonymous memory: pages of files that are mapped are the system's to drop, and `VmHWM` counts them. So
a thread of the measured process reads `RssAnon` from /proc/self/status every 5 ms (Linux only). The figure is of the
whole process, with Python and torch. Where memory is plentiful `cut_folder` opens both models to compare what they
compute; here it is told that there is none, and compares every tensor by its hash, as it does with models of that size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from memory import Watch, peak_megabytes
from safetensors.torch import save_file
from transformers import LlamaConfig

import layerscope as ls

LARGEST = 256_000_000  # bytes of a tensor: the embeddings
ALLOWANCE = 300_000_000
REMOVED = 2  # blocks that are cut out


def config(gigabytes: float) -> LlamaConfig:
    """A Llama whose weights take about so much in bfloat16; small ones have narrow blocks and the same embeddings."""
    width = 4096 if gigabytes >= 4 else 1024
    sizes: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": width * 43 // 16,
        "vocab_size": LARGEST // 2 // width,
    }
    block = 2 * (4 * width**2 + 3 * width * sizes["intermediate_size"] + 2 * width)
    blocks = max(round((gigabytes * 1e9 - 2 * LARGEST) / block), 2 * REMOVED)
    heads = width // 128
    return LlamaConfig(
        **sizes,
        num_hidden_layers=blocks,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
    )


def write_checkpoint(folder: Path, about: LlamaConfig) -> int:
    """Random weights, one file per block and one for the rest; gives the bytes written."""
    folder.mkdir(parents=True)
    about.save_pretrained(folder)
    generator, weight_map, written = torch.Generator().manual_seed(0), {}, 0
    for name, part in _parts(about, generator):
        save_file(part, folder / name, metadata={"format": "pt"})
        written += sum(tensor.nbytes for tensor in part.values())
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": written}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return written


def _parts(about: LlamaConfig, generator: torch.Generator) -> Any:
    """Every file's tensors, one file at a time."""
    width, inner, files = about.hidden_size, about.intermediate_size, about.num_hidden_layers + 1

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.bfloat16)

    for block in range(about.num_hidden_layers):
        tensors = {f"self_attn.{part}_proj": drawn(width, width) for part in "qkvo"}
        tensors |= {f"mlp.{part}_proj": drawn(inner, width) for part in ("gate", "up")}
        tensors |= {"mlp.down_proj": drawn(width, inner)}
        tensors |= {f"{part}_layernorm": drawn(width) for part in ("input", "post_attention")}
        names = {f"model.layers.{block}.{name}.weight": tensor for name, tensor in tensors.items()}
        yield f"model-{block + 1:05d}-of-{files:05d}.safetensors", names
    rest = {name: drawn(about.vocab_size, width) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    yield f"model-{files:05d}-of-{files:05d}.safetensors", {**rest, "model.norm.weight": drawn(width)}


def kept_blocks(depth: int) -> list[int]:
    """The blocks that stay: two in the middle go."""
    gone = range(depth // 2, depth // 2 + REMOVED)
    return [block for block in range(1, depth + 1) if block not in gone]


def cut_on_disk(folder: Path, out: Path, depth: int) -> None:
    from layerscope.cutting import cut_on_disk as folders

    folders.free_memory = lambda: 0  # see the top of this file
    ls.cut_folder(folder, ls.LayerPlan(kept_blocks(depth)), out)


def cut_in_memory(folder: Path, out: Path, depth: int) -> None:
    """Opened, cut, compared and saved: what does not fit in memory cannot be cut so."""
    ls.save(ls.cut(ls.load(folder, dtype="bfloat16", device="cpu"), ls.LayerPlan(kept_blocks(depth))), out)


def cut_by_transformers(folder: Path, out: Path, depth: int) -> None:
    """The usual lines. transformers maps the files where their float type stays, and compares nothing."""
    from transformers import LlamaForCausalLM

    network = LlamaForCausalLM.from_pretrained(folder, dtype="auto")
    network.model.layers = torch.nn.ModuleList(network.model.layers[block - 1] for block in kept_blocks(depth))
    network.config.num_hidden_layers = len(network.model.layers)
    network.save_pretrained(out)


WAYS = {"on disk": cut_on_disk, "in memory": cut_in_memory, "by transformers": cut_by_transformers}


def measured(way: str, folder: Path, out: Path, depth: int) -> dict[str, float]:
    """What a way takes, in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--checkpoint", folder, "--out", out, "--depth", depth]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(gigabytes: float, naive: bool, where: Path) -> dict[str, Any]:
    about = config(gigabytes)
    free = shutil.disk_usage(where).free
    if free < 2.2e9 * gigabytes:
        sys.exit(f"{where} has {free / 1e9:.0f} GB left, and this takes {2.2 * gigabytes:.0f} GB; give --where.")
    with tempfile.TemporaryDirectory(dir=where) as place:
        folder = Path(place) / "checkpoint"
        size = write_checkpoint(folder, about)
        result: dict[str, Any] = {
            "bytes": size,
            "files": about.num_hidden_layers + 1,
            "blocks": about.num_hidden_layers,
        }
        for way in WAYS if naive else ["on disk"]:
            out = Path(place) / "cut"
            result[way] = measured(way, folder, out, about.num_hidden_layers)
            shutil.rmtree(out)
    result["bound"] = 2 * LARGEST + ALLOWANCE
    result["within"] = result["on disk"]["peak"] <= result["bound"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=8.0, help="size of the checkpoint")
    parser.add_argument("--naive", action="store_true", help="also cut it in memory, which takes its size and more")
    parser.add_argument("--where", type=Path, default=Path(tempfile.gettempdir()), help="a folder with room for two")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--way", choices=tuple(WAYS), help=argparse.SUPPRESS)  # these are for the measured process
    parser.add_argument("--checkpoint", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--depth", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        started = time.perf_counter()
        with Watch() as watch:
            WAYS[given.way](given.checkpoint, given.out, given.depth)
        figures = {"peak": watch.peak, "start": watch.start, "resident": 1e6 * peak_megabytes()}
        print(json.dumps({**figures, "seconds": time.perf_counter() - started}))
        return
    result = run(given.gigabytes, given.naive, given.where)
    if given.format == "json":
        print(json.dumps(result))
    else:
        print(f"{result['bytes'] / 1e9:.1f} GB in {result['files']} files, {result['blocks']} blocks")
        for way in (way for way in WAYS if way in result):
            taken = {name: value / 1e6 for name, value in result[way].items()}
            print(
                f"{way}: peak {taken['peak']:,.0f} MB of anonymous memory ({taken['start']:,.0f} MB of it before "
                f"anything was read), {taken['resident']:,.0f} MB with mapped files, {result[way]['seconds']:.0f} s"
            )
        print(f"bound (twice the largest tensor and 300 MB): {result['bound'] / 1e6:,.0f} MB")
    if not result["within"]:
        sys.exit("The peak is above the bound.")


if __name__ == "__main__":
    main()
