"""Networks on their way to other processes: without the hooks that transformers hangs onto what has been run."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import Any

_CAPTURING = "transformers.utils.output_capturing"
_INSTALLED = "_output_capturing_hooks_installed"


def postable(network: Any) -> Any:
    """A copy that shares every weight, without those hooks; the network stays as it is.

    They are functions inside functions, which no pickle holds, and transformers makes them anew when it misses them.
    """
    copied = copy.deepcopy(network, {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())})
    for module in copied.modules():
        vars(module).pop(_INSTALLED, None)
        for key in [key for key, hook in module._forward_hooks.items() if _captures(hook)]:
            del module._forward_hooks[key]
    return copied


def _captures(hook: Any) -> bool:
    return isinstance(hook, FunctionType) and hook.__module__ == _CAPTURING and "<locals>" in hook.__qualname__
