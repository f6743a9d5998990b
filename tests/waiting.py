"""A mode in which no value may be read from a tensor: on a GPU each of these would make the host wait."""

from torch.utils._python_dispatch import TorchDispatchMode

READING = ("_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal", "segment_reduce")


class NoWaiting(TorchDispatchMode):
    """Raises where an operation reads a value, in the thread that entered it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in READING:
            raise AssertionError(f"{func} reads a value from the device")
        return func(*args, **(kwargs or {}))
