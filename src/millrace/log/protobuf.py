"""Protobuf: a .proto text, compiled when it is met, and messages as JSON says them (protobuf's own mapping)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from millrace.errors import RecordSchemaInvalid
from millrace.log.registry import missing

try:
    import grpc_tools  # the compiler; it comes as a program of its own
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory
except ImportError as error:
    raise missing("Protobuf", error) from None

_COMPILE_S = 60
_FILE = "schema.proto"


class ProtobufSchema:
    """The messages of one .proto file. Writing takes the first of them; reading whichever a record names."""

    def __init__(self, text: str, source: str) -> None:
        self._file = _compiled(text, source)
        if not self._file.message_types_by_name:
            raise RecordSchemaInvalid(source=source, reason="it has no message", remedy="define one in it")

    def encode(self, value: Any) -> bytes:
        filled = self._kind([0])()
        try:
            json_format.ParseDict(value, filled)
        except json_format.ParseError as error:
            raise ValueError(str(error)) from None
        return _indexes_bytes([0]) + bytes(filled.SerializeToString())

    def decode(self, content: bytes) -> Any:
        indexes, start = _indexes(content)
        found = self._kind(indexes)()
        try:
            found.ParseFromString(content[start:])
        except message.DecodeError as error:
            raise ValueError(str(error)) from None
        return json_format.MessageToDict(
            found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )

    def _kind(self, indexes: list[int]) -> Any:
        """The class of a message by its place in the file: [1, 0] is the first message within the second."""
        names = [name.name for name in _proto(self._file).message_type]
        descriptor = self._file.message_types_by_name[names[indexes[0]]]
        for index in indexes[1:]:
            descriptor = descriptor.nested_types[index]
        return message_factory.GetMessageClass(descriptor)


def _proto(file: Any) -> Any:
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def _compiled(text: str, source: str) -> Any:
    """The compiler runs as a process: within ours it would print its complaints to the terminal."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / _FILE).write_text(text, encoding="utf-8")
        known = Path(grpc_tools.__path__[0]) / "_proto"
        compiler = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{known}"]
        done = subprocess.run(
            [*compiler, "--include_imports", f"--descriptor_set_out={folder / 'out'}", _FILE],
            capture_output=True,
            text=True,
            timeout=_COMPILE_S,
            check=False,
        )
        if done.returncode != 0:
            reason = " ".join(done.stderr.replace(f"{folder}/", "").split())[:300]
            remedy = "mend that line; it must not import files other than Google's well-known ones"
            raise RecordSchemaInvalid(source=source, reason=reason, remedy=remedy)
        files = descriptor_pb2.FileDescriptorSet.FromString((folder / "out").read_bytes())
    pool = descriptor_pool.DescriptorPool()  # of its own: two schemas may use the same names
    for file in files.file:
        pool.Add(file)
    return pool.FindFileByName(_FILE)


def _indexes_bytes(indexes: list[int]) -> bytes:
    """How Confluent writes which message of the file follows: a count and numbers, zigzag; the first is just a zero."""
    if indexes == [0]:
        return b"\0"
    return b"".join(_varint(number * 2) for number in (len(indexes), *indexes))


def _indexes(content: bytes) -> tuple[list[int], int]:
    count, place = _read_varint(content, 0)
    if count == 0:
        return [0], place
    indexes = []
    for _ in range(count // 2):
        number, place = _read_varint(content, place)
        indexes.append(number // 2)
    return indexes, place


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(content: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[place]  # an IndexError is a record cut short
        number |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return number, place
        shift += 7
        if shift > 28:
            raise ValueError("the numbers of its message are damaged")
