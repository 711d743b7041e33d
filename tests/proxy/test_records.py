"""What a summariser is given of a span: all of it, in as few parts as its window allows."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.policies.builders import assistant, calls, result, system, user, words
from transom.policies.items import Message
from transom.policies.render import Spoken, summary_request
from transom.proxy.records import Record, Recording
from transom.proxy.summaries import PROMPT_TOKENS
from transom.proxy.tokens import Tokenizer

WHOLE_RESULT = 2_000  # characters


def opened(message: Message) -> Spoken:
    """Open a message of the builders; only a call's own text is not in its payload."""
    made = [(call.name, call.arguments) for call in message.calls]
    text = "" if message.calls else message.payload.decode().removeprefix(f"{message.answers}: ")
    return Spoken(message.role, [text], made, message.answers)


def record(*messages: Message, room: int | None = None, result: int = WHOLE_RESULT) -> Record:
    return Recording(opened, words).record(messages, result, room)


def test_a_span_is_one_chunk_without_a_limit() -> None:
    made = record(user("a"), assistant("b"))
    assert made.chunks == ["User: a\n\nAssistant: b"]


def test_what_the_user_said_and_all_that_was_folded_stand_beside_it() -> None:
    call = calls(("c", "look", "{}"))
    made = record(user("a"), call, result("c", "found"), assistant("b"))
    assert made.said == ["a"]
    assert made.folded == ["a", call.calls[0], "", "found", "b"]


def test_a_result_bears_the_name_of_the_tool() -> None:
    (chunk,) = record(calls(("c", "look", "{}")), result("c", "found"), result("d", "lost")).chunks
    assert chunk.endswith("Tool result (look): found\n\nTool result (d): lost")


def test_a_long_result_is_shown_in_part_and_folded_whole() -> None:
    made = record(result("c", "x" * 300), result=100)
    assert "[… 200 characters left out …]" in made.chunks[0]
    assert made.folded == ["x" * 300]


def test_what_has_fewer_bytes_than_the_window_tokens_is_not_counted() -> None:
    def never(_text: str) -> int:
        raise AssertionError

    span = [user("one two"), assistant("three")]
    assert Recording(opened, never).record(span, WHOLE_RESULT, 100).chunks == ["User: one two\n\nAssistant: three"]


def test_a_message_is_counted_by_its_parts_as_they_came() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return words(text)

    Recording(opened, count).record([user("one two"), calls(("c", "look", '{"at": 1}'))], WHOLE_RESULT, 40)
    assert set(counted) <= {"", "one two", "look", '{"at": 1}'}


def test_a_span_larger_than_the_window_comes_in_chunks() -> None:
    chunks = record(user("a " * 30), assistant("b " * 30), user("c " * 30), room=50).chunks
    assert [chunk[:6] for chunk in chunks] == ["User: ", "Assist", "User: "]


def test_a_message_larger_than_the_window_is_elided() -> None:
    (chunk,) = record(user("a " * 300), room=50).chunks
    assert "characters left out" in chunk
    assert words(chunk) <= 50


SPANS = st.lists(
    st.one_of(
        st.builds(user, st.text("ab ", min_size=1, max_size=200)),
        st.builds(assistant, st.text("ab ", min_size=1, max_size=200)),
        st.builds(system, st.text("ab ", min_size=1, max_size=200)),
        st.builds(lambda text: result("c", text), st.text("ab ", min_size=1, max_size=200)),
        st.builds(lambda text: calls(("c", "look", text), ("d", "ask", text)), st.text("ab ", max_size=100)),
    ),
    min_size=1,
    max_size=20,
)


@given(SPANS, st.integers(150, 400))
def test_chunks_hold_the_span_in_order_and_fit(span: Sequence[Message], room: int) -> None:
    made, whole = record(*span, room=room), record(*span)
    assert "\n\n".join(made.chunks) == whole.chunks[0]
    assert all(words(chunk) <= room for chunk in made.chunks)
    assert (made.said, made.folded) == (whole.said, whole.folded)


def test_the_room_kept_for_the_prompt_around_a_chunk_is_enough_and_not_much_too_large() -> None:
    count = Tokenizer().count
    around = sum(count(text) + 4 for text in summary_request("-", "-", nonce="0123456789abcdef", limit=2_048))
    assert 0.75 * PROMPT_TOKENS < around < 0.9 * PROMPT_TOKENS
