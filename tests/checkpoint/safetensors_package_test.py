"""The files of a checkpoint, opened by Python's package safetensors.

usage: safetensors_package_test.py FIXTURE_FOLDER

The fixture is byte for byte what the program writes (fixture_test.cpp). FSDPTRAIN_PYTORCH in the
environment: a Python that may have the package where this one has not. Without one, nothing is tested
(exit code 77).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

SKIPPED = 77


def own_reading(path):
    """{name: (dtype, shape, bytes)} and the metadata, by nothing but the format's description."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__")
    body = data[8 + length:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items()}, metadata


def check(path, safetensors):
    expected, metadata = own_reading(path)
    tensors = dict(safetensors.deserialize(path.read_bytes()))
    assert sorted(tensors) == sorted(expected), f"{path}: {sorted(tensors)}"
    for name, (dtype, shape, data) in expected.items():
        tensor = tensors[name]
        found = (tensor["dtype"], list(tensor["shape"]), bytes(tensor["data"]))
        assert found == (dtype, shape, data), f"{path}: {name}: {found}"
    with safetensors.safe_open(path, framework="numpy") as file:
        assert file.metadata() == metadata, f"{path}: {file.metadata()}"
        assert sorted(file.keys()) == sorted(expected)
        table = file.get_tensor("block_digests")
        assert table.dtype == "int64" and table.tobytes() == expected["block_digests"][2]


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        import numpy  # noqa: F401, what safe_open gives
        import safetensors
    except ImportError:
        other = os.environ.get("FSDPTRAIN_PYTORCH", "")
        if other:
            # Once: it has the package or nobody has.
            environment = {**os.environ, "FSDPTRAIN_PYTORCH": ""}
            return subprocess.run([other, __file__, *arguments], env=environment,
                                  check=False).returncode
        print("the package safetensors is not installed: nothing was tested")
        return SKIPPED
    files = sorted(Path(arguments[0]).rglob("*.safetensors"))
    assert len(files) == 3, f"{arguments[0]}: {files}"
    for path in files:
        check(path, safetensors)
    print(f"safetensors {safetensors.__version__} reads {len(files)} files as they were written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
