"""Hashes of tensors' bytes."""

import pytest
import torch
import xxhash

from layerscope.models import fingerprint, load
from layerscope.models.fingerprint import Scan, bytes_hash, hashed_once
from layerscope.store import NoKey
from tests.helpers.models import random_network


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (64, 64)])
def test_the_hash_is_of_the_bytes_in_their_order(shape, dtype):
    tensor = (torch.rand(shape) * 9).to(dtype)
    written = bytes(tensor.reshape(-1).view(torch.uint8).tolist())
    assert bytes_hash(tensor) == xxhash.xxh3_128(written).hexdigest()
    if len(shape) == 2:
        assert bytes_hash(tensor.T) == bytes_hash(tensor.T.clone(memory_format=torch.contiguous_format))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 1023, 1024, 5000])
def test_the_hash_is_the_same_on_a_gpu(size, monkeypatch):
    monkeypatch.setattr(fingerprint, "_PIECE", 1024)
    tensor = torch.randn(size)
    assert bytes_hash(tensor.cuda()) == bytes_hash(tensor)


_empty = torch.empty


def _unpinned(size: int, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
    assert pin_memory
    return _empty(size, dtype=dtype)


class Event:
    """A copy that is there at once."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...


@pytest.mark.parametrize("size", [1, 7, 8, 9, 40])
def test_pieces_are_all_the_bytes_in_their_order(size, monkeypatch):
    """The same code on a CPU, with events that wait for nothing."""
    monkeypatch.setattr(fingerprint, "_PIECE", 8)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())
    monkeypatch.setattr(torch, "empty", _unpinned)
    flat = torch.arange(size, dtype=torch.uint8)
    assert (
        torch.cat([piece.clone() for piece in fingerprint._through_pinned(flat, fingerprint._Buffers())]).tolist()
        == flat.tolist()
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_tensors_hashed_beside_one_another_have_the_hashes_of_each(threads, monkeypatch):
    monkeypatch.setattr(fingerprint, "_THREADS", threads)
    monkeypatch.setattr(fingerprint, "_SMALL", 64)
    tensors = [torch.randn(size) for size in (0, 3, 200, 7, 5000, 1)]
    with fingerprint.hashing_ahead() as begin:
        later = [begin(tensor) for tensor in tensors]
        assert [each() for each in later] == [bytes_hash(tensor) for tensor in tensors]


@pytest.mark.gpu
def test_a_gpus_tensors_are_hashed_after_what_was_asked_of_them_before():
    """In the queue of the caller, whichever thread hashes."""
    whole = torch.randn(2000, 2000)
    with torch.cuda.stream(torch.cuda.Stream()), fingerprint.hashing_ahead() as begin:
        there = whole.cuda()
        torch.cuda._sleep(50_000_000)
        there += 1
        assert begin(there)() == bytes_hash(whole + 1)


def test_a_network_is_hashed_once_where_nothing_changes_it(monkeypatch):
    model, other = load(random_network("bert")), load(random_network("bert", seed=1))
    scanned = []
    tensors = Scan._tensors
    monkeypatch.setattr(Scan, "_tensors", lambda self, network: scanned.append(network) or tensors(self, network))
    expected = fingerprint.fingerprint(model), fingerprint.fingerprint(other)
    with hashed_once():
        assert [(fingerprint.fingerprint(model), fingerprint.fingerprint(other)) for _ in range(3)] == [expected] * 3
    assert len(scanned) == 4
    with torch.no_grad():
        model.network.classifier.bias += 1
    assert fingerprint.fingerprint(model) != expected[0]


def test_what_cannot_be_hashed_has_no_key_the_second_time_either():
    model = load(random_network("bert"))
    model.network.register_forward_hook(lambda *_: None)
    with hashed_once():
        for _ in range(2):
            with pytest.raises(NoKey, match="a hook on"):
                model.spec()
