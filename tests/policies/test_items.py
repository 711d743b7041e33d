import pytest

from transom.policies.items import Call, Message


def message(role: str) -> Message:
    return Message(role, b"{}", b"d", 4, 1)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_and_developer_messages_are_the_systems(role: str) -> None:
    assert message(role).is_system


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "function", "System", ""])
def test_no_other_role_is(role: str) -> None:
    assert not message(role).is_system


def test_a_message_calls_and_answers_nothing_unless_said() -> None:
    assert message("user").calls == ()
    assert message("user").answers is None


def test_values_do_not_change() -> None:
    with pytest.raises(AttributeError):
        message("user").tokens = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Call("a", "b", "{}").arguments = ""  # type: ignore[misc]
