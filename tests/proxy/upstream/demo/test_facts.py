import pytest

from transom.proxy.upstream.demo.facts import Fact, asked, facts, recall


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My dog is Rex.", Fact("your", "dog", "Rex")),
        ("Well, my favourite colour is dark blue, I think.", Fact("your", "favourite colour", "dark blue, I think")),
        ("Our limit is 3.5 MB. Good.", Fact("our", "limit", "3.5 MB")),
        ("My mail is ann@b.example!", Fact("your", "mail", "ann@b.example")),
        ("The deadline will be 2 May;", Fact("the", "deadline", "2 May")),
        ("The user's dog is called Rex.", Fact("your", "dog", "Rex")),
        ('{"order_id": "A-17"}', Fact("the", "order id", "A-17")),
        ('{"total": 12.5}', Fact("the", "total", "12.5")),
    ],
)
def test_statements(text: str, found: Fact) -> None:
    assert facts(text) == [found]


def test_two_statements_in_one_sentence() -> None:
    assert facts("My name is Ada and my budget is 900 euros.") == [
        Fact("your", "name", "Ada"),
        Fact("your", "budget", "900 euros"),
    ]


@pytest.mark.parametrize("text", ["What is my dog's name?", "It rains.", "My oh my.", ""])
def test_no_statements(text: str) -> None:
    assert facts(text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("What is my dog's name?", "dog's name"),
        ("what's my budget again?", "budget"),
        ("Do you remember my dog’s name?", "dog's name"),
        ("Please remind me of our deadline.", "deadline"),
        ("Where is the order_id?", "order id"),
    ],
)
def test_questions(text: str, what: str) -> None:
    found = asked(text)

    assert found is not None
    assert found.what == what


def test_statements_are_no_questions() -> None:
    assert asked("My dog is Rex.") is None


def test_recall_takes_the_newest_and_knows_names() -> None:
    question = Fact("your", "dog's name", "")

    assert recall(question, ["My dog is Rex.", "My dog is called Bello.", "Hi."]) == Fact("your", "dog's name", "Bello")
    assert recall(question, ["My cat is Tom."]) is None
