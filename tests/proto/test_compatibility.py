"""Our bytes against the official runtime's, for every message type and in both directions."""

from __future__ import annotations

import betterproto2
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.examples import share

from pointsman.proto import DecodeError, decode, encode
from pointsman.proto.schema import schema_of

from . import messages, oracle

every_type = pytest.mark.parametrize(
    "message_type", oracle.ALL_TYPES, ids=lambda message_type: message_type.__name__
)
# upb takes the forbidden field number 0 for a message that has no fields; we never do.
every_type_with_fields = pytest.mark.parametrize(
    "message_type",
    [message_type for message_type in oracle.ALL_TYPES if schema_of(message_type).fields],
    ids=lambda message_type: message_type.__name__,
)
thorough = settings(
    max_examples=share(0.08),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@every_type
@thorough
@given(data=st.data())
def test_the_official_runtime_reads_what_we_write(
    message_type: type[betterproto2.Message], data: st.DataObject
) -> None:
    theirs = data.draw(messages.official(message_type))
    assert oracle.parse(message_type, encode(oracle.ours(message_type, theirs))) == theirs


@every_type
@thorough
@given(data=st.data())
def test_we_read_what_the_official_runtime_writes(
    message_type: type[betterproto2.Message], data: st.DataObject
) -> None:
    theirs = data.draw(messages.official(message_type))
    message = decode(message_type, theirs.SerializeToString())
    assert message == oracle.ours(message_type, theirs)
    assert oracle.parse(message_type, encode(message)) == theirs


@every_type
@thorough
@given(data=st.data())
def test_unknown_fields_on_any_level_change_nothing(
    message_type: type[betterproto2.Message], data: st.DataObject
) -> None:
    theirs = data.draw(messages.official(message_type))
    noisy = data.draw(messages.scattered(theirs.SerializeToString(), theirs.DESCRIPTOR))
    assert decode(message_type, noisy) == oracle.ours(message_type, theirs)


@every_type
@thorough
@given(data=st.data())
def test_one_message_behind_another_is_merged_as_the_official_runtime_does(
    message_type: type[betterproto2.Message], data: st.DataObject
) -> None:
    both = b"".join(
        data.draw(messages.official(message_type)).SerializeToString() for _ in range(2)
    )
    expected = oracle.ours(message_type, oracle.parse(message_type, both))
    assert decode(message_type, both) == expected


@every_type_with_fields
@thorough
@given(data=st.data())
def test_damaged_messages_are_read_or_refused_as_the_official_runtime_does(
    message_type: type[betterproto2.Message], data: st.DataObject
) -> None:
    whole = data.draw(messages.official(message_type)).SerializeToString()
    assert_agreement(message_type, data.draw(messages.damaged(whole)))


@every_type_with_fields
@thorough
@given(data=st.binary(max_size=60))
def test_garbage_is_read_or_refused_as_the_official_runtime_does(
    message_type: type[betterproto2.Message], data: bytes
) -> None:
    assert_agreement(message_type, data)


def assert_agreement(message_type: type[betterproto2.Message], data: bytes) -> None:
    """Both refuse *data* or read the same, except that we accept strings that are not UTF-8."""
    try:
        message = decode(message_type, data)
    except DecodeError:
        with pytest.raises(oracle.DecodeError):
            oracle.parse(message_type, data)
        return
    try:
        theirs = oracle.parse(message_type, data)
    except oracle.BadText:
        return
    assume("nan" not in str(theirs))  # which is never equal to itself
    assert message == oracle.ours(message_type, theirs) or oracle.loses_entries(theirs)
