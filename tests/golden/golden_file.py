"""Writes and compares golden files; shared by the make_*.py scripts of this folder."""

import json
import pathlib
import struct

import numpy
import safetensors.numpy
import torch

FOLDER = pathlib.Path(__file__).resolve().parent


def run_deterministically():
    """One thread and no choice of algorithm: a machine always writes the same bytes."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def save(path, tensors, metadata):
    """Writes `tensors` (name -> torch.Tensor) and `metadata` (str -> anything printable)."""
    arrays = {name: tensor.detach().contiguous().numpy() for name, tensor in tensors.items()}
    text = {key: str(value) for key, value in metadata.items()}
    path.write_bytes(with_sorted_metadata(safetensors.numpy.save(arrays, metadata=text)))
    print(f"{path.name}: {len(arrays)} tensors, {path.stat().st_size} bytes")


def with_sorted_metadata(content):
    """The safetensors library writes the metadata in an order that differs between runs."""
    (header_size,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + header_size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + content[8 + header_size :]


def check(path, tensors):
    """Compares `tensors` with the file. Another processor may differ in the last bits."""
    expected = safetensors.numpy.load_file(path)
    assert expected.keys() == tensors.keys(), f"{path.name} holds other tensors"
    worst = 0.0
    for name, array in expected.items():
        actual = tensors[name].detach().numpy()
        assert actual.dtype == array.dtype, f"{path.name}: dtype of {name}"
        assert actual.shape == array.shape, f"{path.name}: shape of {name}"
        if array.dtype == numpy.int64:
            assert (actual == array).all(), f"{path.name}: {name} differs"
            continue
        tolerance = 1e-5 if array.dtype == numpy.float32 else 1e-12
        difference = numpy.abs(actual - array).max() / max(numpy.abs(array).max(), 1e-300)
        assert difference <= tolerance, f"{path.name}: {name} differs by {difference:.1e}"
        worst = max(worst, float(difference))
    print(f"{path.name}: {len(expected)} tensors agree, worst relative difference {worst:.1e}")


def save_or_check(path, tensors, metadata, check_only):
    if check_only:
        check(path, tensors)
    else:
        save(path, tensors, metadata)
