from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.builders import calls, result, user
from transom.policies.items import Message
from transom.policies.passages import MOST_PASSAGES, PASSAGE, Passages, bit, bounded, full_text, split

PROFILE = settings.get_profile("policies")


def cut(text: str) -> list[str]:
    return [text[p.start : p.end] for p in split(text)]


def test_rule_1_a_message_is_its_text_and_its_calls() -> None:
    made = calls(("1", "find", '{"id": 1}'), ("2", "book", "{}"))
    assert full_text(made, lambda _: "let me see") == 'let me see\nfind({"id": 1})\nbook({})'
    assert full_text(user("hello"), lambda _: "hello") == "hello"
    assert full_text(made, lambda _: "") == 'find({"id": 1})\nbook({})'


def test_rule_2_a_text_of_usual_length_is_one_passage() -> None:
    assert cut("a " * (PASSAGE * 3 // 4)) == ["a " * (PASSAGE * 3 // 4)]
    assert cut("") == []


def test_rule_2_a_long_text_is_cut_at_the_end_of_a_line() -> None:
    first = "x" * (PASSAGE * 3 // 4) + ". y\n"
    assert cut(first + "z. " * PASSAGE)[0] == first


def test_rule_2_else_of_a_sentence() -> None:
    first = "x" * (PASSAGE * 3 // 4) + ". "
    assert cut("line\n" + first + "z " * PASSAGE)[0] == "line\n" + first
    assert cut("字" * (PASSAGE * 3 // 4) + "。" + "字" * PASSAGE)[0].endswith("。")


def test_rule_2_else_of_a_word_and_else_anywhere() -> None:
    first = "x" * (PASSAGE * 3 // 4) + " "
    assert cut(first + "z" * PASSAGE)[0] == first
    assert cut("x" * PASSAGE * 2)[0] == "x" * PASSAGE


def test_rule_2_what_is_beyond_the_first_passages_is_not_searched() -> None:
    assert len(split("x" * PASSAGE * (MOST_PASSAGES + 9))) == MOST_PASSAGES


def test_a_passage_counts_terms() -> None:
    (passage,) = split("the cat and the dog, the end")
    assert passage.length == 7
    assert passage.terms.count(bounded("the")) == 3
    assert passage.terms.count(bounded("do")) == 0
    assert all(passage.mask & bit(term) for term in ("the", "cat", "and", "dog", "end"))


class Reader:
    def __init__(self) -> None:
        self.read: list[bytes] = []

    def __call__(self, message: Message) -> str:
        self.read.append(message.digest)
        return message.payload.decode()


def test_rule_3_what_was_cut_once_is_remembered() -> None:
    passages, reader, message = Passages(), Reader(), user("hello there")
    assert passages.of(message, reader) == passages.of(user("hello there"), reader) == split("hello there")
    assert reader.read == [message.digest]


def test_rule_3_the_least_recently_used_go_first() -> None:
    passages, reader = Passages(1_500), Reader()
    one, two, three = (user(f"number {n}") for n in range(3))
    for message in (one, two, one, three, one, two):
        passages.of(message, reader)
    assert reader.read == [m.digest for m in (one, two, three, two)]


def test_rule_3_one_message_larger_than_all_is_not_kept() -> None:
    passages, reader = Passages(10), Reader()
    for _ in range(2):
        assert passages.of(result("c", "found it"), reader)
    assert len(reader.read) == 2


@PROFILE
@given(st.text(alphabet=st.sampled_from("ab .\n字。"), max_size=PASSAGE * 4))
def test_whatever_the_text_passages_are_all_of_it_in_order(text: str) -> None:
    assert "".join(cut(text)) == text
    assert all(len(piece) <= PASSAGE * 3 // 2 for piece in cut(text))
