from msgspec.structs import replace

from tests.policies.builders import assistant, calls, result, user, words
from transom.policies.items import Message
from transom.policies.substitution import WORTH_COUNTING, substitute
from transom.policies.view import Substitute


def weighed(message: Message, text: str, present: str) -> Substitute:
    return substitute(message, text, words, lambda _: present)


def test_a_message_counts_4_and_its_new_text() -> None:
    assert weighed(user("one two three"), "one", "one two three") == Substitute("one", 5)


def test_its_calls_count_on() -> None:
    message = calls(("c", "look", '{"a": 1}'), text="one two three")
    assert weighed(message, "one", "one two three").tokens == 4 + 1 + 4 + 3


def test_its_name_counts_on() -> None:
    named = result("c", "one two three", tokens=9)  # 4, 3 words, a name of 2
    assert weighed(named, "one", "one two three").tokens == 7


def test_images_go_with_the_content() -> None:
    pictured = replace(assistant("one", tokens=800), media=True)
    assert weighed(pictured, "one", "one [image]").tokens == 5


def test_a_very_long_text_is_not_counted_again() -> None:
    long = user("one", tokens=100_000)
    assert weighed(long, "one", "x" * (WORTH_COUNTING + 1)).tokens == 5


def test_what_counts_too_much_for_a_name_is_none() -> None:
    assert weighed(user("one", tokens=100), "one two", "one").tokens == 6


def test_a_count_that_differs_never_makes_a_message_lighter_than_its_text() -> None:
    assert weighed(user("one", tokens=5), "one two", "now counted as many").tokens == 6
