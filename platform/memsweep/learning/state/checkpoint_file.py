"""The bytes of a checkpoint: damaged or foreign content is refused before any of it is used.

The file is a line that names the format, the SHA-256 of the rest, and the rest: the zip file that ``torch.save``
writes. A checkpoint may come from a shared disk or bucket, so its bytes are not trusted: the sizes that it declares are
compared with its length, and the names that its pickle would call with the names that our own states need.
"""

from __future__ import annotations

import hashlib
import io
import pickletools
import re
import zipfile
from typing import Any

import torch

from memsweep.errors import MemsweepError

_KIND = b"memsweep checkpoint "
_FIRST_LINE = _KIND + b"2\n"
_DIGEST_BYTES = 32
_NAMES = re.compile(r"collections OrderedDict|torch\._utils _rebuild_tensor_v2|torch (Double|Float|Long|Bool)Storage")
"""Names that the pickle of a state refers to: plain data, and dense tensors of the types that a learner has."""


class UnusableError(MemsweepError):
    """A checkpoint from which training cannot continue; the message ends a sentence that starts with its name."""


def to_bytes(state: dict[str, Any]) -> bytes:
    """A state of plain data and tensors as the bytes of a file."""
    stream = io.BytesIO()
    torch.save(state, stream)
    payload = stream.getbuffer()
    return b"".join([_FIRST_LINE, hashlib.sha256(payload).digest(), payload])


def from_bytes(data: bytes, most: int) -> Any:
    """The state of a file that ``to_bytes`` wrote; tensors on the processor.

    Args:
        data: the whole file.
        most: largest size of the state in bytes.

    Raises:
        UnusableError: the file is damaged, has another format, or holds more than a state needs.
    """
    if len(data) > most:
        raise UnusableError(f"is no state of this pack: it has more than the {most:,} bytes that one can take")
    head = len(_FIRST_LINE) + _DIGEST_BYTES
    if not data.startswith(_FIRST_LINE):
        known = data.startswith(_KIND)
        raise UnusableError("is of another version of memsweep" if known else "is no checkpoint, or an old one")
    payload = memoryview(data)[head:]
    if hashlib.sha256(payload).digest() != data[len(_FIRST_LINE) : head]:
        raise UnusableError("is damaged: its checksum does not fit its content")
    try:
        _check_zip(payload)
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except UnusableError:
        raise
    except Exception as error:  # crafted content can fail in many ways
        reason = (str(error).splitlines() or [""])[0][:200]
        raise UnusableError(f"cannot be read ({type(error).__name__}: {reason})") from error


def _check_zip(payload: memoryview) -> None:
    """Refuse a zip file that takes more memory than it has bytes, or calls a name that our states do not need."""
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise UnusableError("is not ours: its content is compressed")
        if sum(entry.file_size for entry in entries) > len(payload):
            raise UnusableError("is not ours: it declares more content than it has bytes")
        pickles = [entry for entry in entries if entry.filename.endswith(".pkl")]
        if len(pickles) != 1:
            raise UnusableError(f"is not ours: it holds {len(pickles)} pickles")
        for opcode, argument, _ in pickletools.genops(archive.read(pickles[0])):
            if "GLOBAL" in opcode.name and not (isinstance(argument, str) and _NAMES.fullmatch(argument)):
                raise UnusableError(f"is not ours: it calls for {str(argument)[:100]!r}, which no state needs")
