"""What kubectl sends in protobuf only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.kube.protobuf import MAGIC, MEDIA_TYPE, read_protobuf

from .kit import Api, MakeApi


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    identity = field(1, api_version) + field(2, kind)
    return MAGIC + field(1, identity) + field(2, raw) + field(3, "") + field(4, "")


METADATA = (
    field(1, "n")
    + field(3, "ns")
    + varint(7 << 3)
    + varint(300)
    + field(8, field(1, b""))
    + field(11, field(1, "app") + field(2, "x"))
    + field(11, field(1, "empty"))
    + field(14, "example.com/hold")
)


def test_an_object_is_read() -> None:
    raw = field(1, METADATA) + field(2, field(1, "key") + field(2, "value")) + field(2, b"")
    assert read_protobuf(envelope("v1", "ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "n",
            "namespace": "ns",
            "labels": {"app": "x", "empty": ""},
            "finalizers": ["example.com/hold"],
        },
        "data": {"key": "value", "": ""},
    }


def test_lists_of_messages_are_read() -> None:
    rule = field(1, "get") + field(1, "list") + field(2, "") + field(3, "pods")
    raw = field(1, field(1, "r")) + field(2, rule) + field(2, field(1, "*"))
    role = read_protobuf(envelope("rbac.authorization.k8s.io/v1", "Role", raw))
    assert role["rules"] == [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["*"]},
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no envelope"),
        (MAGIC, "cannot be read from protobuf"),
        (envelope("v1", "Pod", b""), "Pod cannot be read from protobuf"),
        (MAGIC + b"\x0a\x7f", "cut off"),
        (MAGIC + b"\x0f", "no message"),
        (MAGIC + b"\xff" * 20, "cut off"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_protobuf(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_a_value_error(data: bytes) -> None:
    try:
        assert read_protobuf(MAGIC + field(1, field(2, "Role")) + data)["kind"] == "Role"
    except ValueError:
        return


async def test_an_object_can_be_created_from_protobuf(api: Api) -> None:
    raw = field(1, field(1, "work"))
    body = envelope("v1", "Namespace", raw)
    code, made = await api.evolved(media=MEDIA_TYPE).ask("POST", "/api/v1/namespaces", body)
    assert (code, made["metadata"]["name"]) == (201, "work")


async def test_a_right_can_be_asked_for_in_protobuf(make_api: MakeApi) -> None:
    wanted = field(1, "default") + field(2, "list") + field(5, "pods")
    body = envelope(
        "authorization.k8s.io/v1", "SelfSubjectAccessReview", field(2, field(1, wanted))
    )
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    code, answer = await make_api().evolved(media=MEDIA_TYPE).ask("POST", path, body)
    assert (code, answer["status"]["allowed"]) == (201, True)
