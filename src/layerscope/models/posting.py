"""Networks as bytes, for other processes: without the hooks that transformers hangs onto what has been run."""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any

_CAPTURING = "transformers.utils.output_capturing"
_INSTALLED = "_output_capturing_hooks_installed"


class _Packer(pickle.Pickler):
    """Pickles a network as it is, except for hooks that transformers makes anew when it misses them."""

    def reducer_override(self, value: Any) -> Any:
        captures = isinstance(value, FunctionType) and value.__module__ == _CAPTURING
        return (_no_hook, ()) if captures and "<locals>" in value.__qualname__ else NotImplemented


def _no_hook() -> None:
    """What stands in the place of a hook on the way."""


def packed(network: Any) -> bytes:
    """A network as bytes; it stays as it is."""
    buffer = io.BytesIO()
    _Packer(buffer, pickle.HIGHEST_PROTOCOL).dump(network)
    return buffer.getvalue()


def unpacked(data: bytes) -> Any:
    """The network that was packed."""
    network = pickle.loads(data)
    for module in network.modules():
        vars(module).pop(_INSTALLED, None)
        for key in [key for key, hook in module._forward_hooks.items() if hook is None]:
            del module._forward_hooks[key]
    return network
