"""The executed notebooks of examples/ as pages, with their outputs, and each notebook to download."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path in sorted(EXAMPLES.glob("*.ipynb")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=page(path)))
        files.append(File.generated(config, f"examples/{path.name}", content=path.read_bytes()))
    return files


def page(path: Path) -> str:
    """A notebook as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [part for output in cell.get("outputs", ()) for part in _shown(output)]
    parts.append(f"The notebook itself: [{path.name}]({path.name}).")
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        yield f"![figure](data:image/png;base64,{''.join(data['image/png']).strip()})"
    elif text := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
        yield f"```text\n{text}\n```"
