"""Avro and Protobuf through a real registry: what was written is what is read, and a misfit is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.config import Endpoint, Secret
from millrace.errors import (
    FormatUnknown,
    RecordSchemaInvalid,
    RecordSchemaMissing,
    RecordUnreadable,
    RegistryUnreachable,
    ValueUnwritable,
)
from millrace.log import Log
from millrace.log.avro import AvroSchema
from millrace.log.protobuf import ProtobufSchema, _indexes, _indexes_bytes
from millrace.log.record import json_bytes

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Payment",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
            {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["ok", "failed"]}},
            {"name": "note", "type": ["null", "string", {"type": "array", "items": "string"}], "default": None},
            {"name": "blob", "type": ["null", "bytes"], "default": None},
            {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {}},
            {"name": "refund", "type": ["null", "Payment"], "default": None},
        ],
    }
)
PAYMENT: dict[str, Any] = {
    "id": 2**40,
    "at": "2026-11-15T09:30:00.123456+00:00",
    "day": "2026-11-15",
    "amount": "12.50",
    "status": "ok",
    "note": ["grüße"],
    "blob": "AP8=",
    "tags": {"x": 1.5},
    "refund": None,
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Payment {
  string id = 1;
  int64 customer = 2;
  google.protobuf.Timestamp at = 3;
  repeated Line lines = 4;
  bytes blob = 5;
  message Line { string name = 1; }
}
message Other { string name = 1; }
"""
MESSAGE: dict[str, Any] = {
    "id": "a",
    "customer": "7",
    "at": "2026-11-15T09:30:00Z",
    "lines": [{"name": "ü"}],
    "blob": "AP8=",
}


def plain(value: Any) -> Any:
    return json.loads(json_bytes(value))


def test_avro_says_what_json_says() -> None:
    schema = AvroSchema(AVRO, "here")
    for payment in (PAYMENT, {**PAYMENT, "note": "text", "refund": {**PAYMENT, "blob": None}}):
        assert plain(schema.decode(schema.encode(payment))) == payment
    least = {name: PAYMENT[name] for name in ("id", "at", "day", "amount", "status")}
    assert plain(schema.decode(schema.encode(least))) == {
        **least,
        "note": None,
        "blob": None,
        "tags": {},
        "refund": None,
    }


def test_protobuf_says_what_json_says() -> None:
    schema = ProtobufSchema(PROTO, "here")
    assert schema.decode(schema.encode(MESSAGE)) == MESSAGE
    other = _indexes_bytes([1]) + b"\x0a\x01x"  # field 1, a text of one byte
    assert schema.decode(other) == {"name": "x"}
    nested = _indexes_bytes([0, 0]) + b"\x0a\x01y"
    assert schema.decode(nested) == {"name": "y"}


def test_the_place_of_a_message_is_written_as_confluent_does() -> None:
    assert _indexes_bytes([0]) == b"\x00"
    assert _indexes_bytes([1, 0]) == b"\x04\x02\x00"
    for indexes in ([0], [1], [0, 0], [2, 130, 0]):
        assert _indexes(_indexes_bytes(indexes) + b"rest") == (indexes, len(_indexes_bytes(indexes)))


@pytest.mark.parametrize("text", ["{", '"nope"', '{"type": "record"}'])
def test_a_wrong_avro_schema_is_told(text: str) -> None:
    with pytest.raises(RecordSchemaInvalid, match="payments"):
        AvroSchema(text, "payments.avsc")


def test_a_wrong_proto_is_told_with_its_line() -> None:
    with pytest.raises(RecordSchemaInvalid, match=r"schema\.proto:3"):
        ProtobufSchema('syntax = "proto3";\n\nmessage {}', "payments.proto")
    with pytest.raises(RecordSchemaInvalid, match="no message"):
        ProtobufSchema('syntax = "proto3";', "payments.proto")


def test_a_missing_extra_is_one_sentence() -> None:
    code = """
import sys
sys.modules["fastavro"] = sys.modules["grpc_tools"] = None
for module in ("avro", "protobuf"):
    try:
        __import__(f"millrace.log.{module}")
    except Exception as error:
        print(error)
"""
    said = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert len(said) == 2
    assert all("pip install 'millrace[registry]'" in line for line in said)


@pytest.fixture
def with_registry(log: Log, registry: str) -> Log:
    return Log(replace(log.settings, registry=Endpoint(Secret("registry.url", registry))))


@pytest.mark.server
@pytest.mark.parametrize(("name", "schema", "value"), [("avro", AVRO, PAYMENT), ("protobuf", PROTO, MESSAGE)])
def test_records_go_through_the_registry(
    with_registry: Log, make_topic: Callable[..., str], tmp_path: Path, name: str, schema: str, value: dict[str, Any]
) -> None:
    log, topic = with_registry, make_topic()
    (tmp_path / "schema").write_text(schema)
    writing = log.format(topic, name, tmp_path / "schema")
    log.write(topic, writing.encode(value))
    log.write(topic, None)
    log.write(topic, writing.encode(value))
    log.write(topic, b"{}")
    records = list(log.read(topic))
    assert records[0].value == records[2].value
    assert (records[0].value or b"")[:1] == b"\0"
    reading = log.format(topic, name)
    assert [plain(reading.decode(record)) for record in records[:3]] == [value, None, value]
    with pytest.raises(RecordUnreadable, match=rf"offset 3 .*'{topic}', partition 0, is not {name.capitalize()}"):
        reading.decode(records[3])
    with pytest.raises(RecordUnreadable, match="no schema 999999"):
        reading.decode(records[0]._replace(value=b"\0" + (999_999).to_bytes(4) + b"x"))
    other = log.format(topic, "avro" if name == "protobuf" else "protobuf")
    with pytest.raises(RecordUnreadable, match=f"is {name.upper()}"):
        other.decode(records[0])
    for wrong in ({**value, "id": {}}, {**value, "extra": 1}, 5):
        with pytest.raises(ValueUnwritable):
            writing.encode(wrong)
    with pytest.raises(RecordSchemaMissing):
        reading.encode(value)


@pytest.mark.server
def test_json_needs_no_registry(log: Log) -> None:
    json_format = log.format("any", "json")
    assert json_format.encode({"a": 1}) == b'{"a":1}'
    with pytest.raises(FormatUnknown, match="did you mean 'avro'"):
        log.format("any", "arvo")
    away = Log(replace(log.settings, registry=Endpoint(Secret("registry.url", "http://127.0.0.1:1"))))
    with pytest.raises(RegistryUnreachable, match=r"127\.0\.0\.1:1"):
        away.format("any", "avro", AVRO)
