import json
from typing import Any

import pytest

from transom.proxy.upstream.demo.plan import fill, plan
from transom.proxy.upstream.demo.request import Function


def offer(name: str, *required: str, **properties: Any) -> Function:
    rules = {key: {"type": kind} if isinstance(kind, str) else kind for key, kind in properties.items()}
    return Function(name, parameters={"type": "object", "properties": rules, "required": list(required)})


WEATHER = offer("get_weather", "city", city="string", unit={"type": "string", "enum": ["celsius", "fahrenheit"]})
ADD = offer("add", "a", "b", a="number", b="integer")
SEARCH = offer("searchFiles", "query", query="string", limit="integer")
FLIGHT = offer("search_flights", "origin", "destination", origin="string", destination="string", seats="integer")
OFFERED = [FLIGHT, WEATHER, ADD, SEARCH, Function("ping")]


def planned(text: str) -> list[list[tuple[str, Any]]]:
    return [[(name, json.loads(arguments)) for name, arguments in step] for step in plan(text, OFFERED)]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("What's the weather in New York?", [[("get_weather", {"city": "New York"})]]),
        (
            "Please check the weather in Paris, Rome and Oslo.",
            [[("get_weather", {"city": city}) for city in ("Paris", "Rome", "Oslo")]],
        ),
        ("Add 2.5 and 3, please.", [[("add", {"a": 2.5, "b": 3})]]),
        ('Search files for "main loop"', [[("searchFiles", {"query": "main loop"})]]),
        ("call searchFiles with query='a b', limit=5, other=1", [[("searchFiles", {"query": "a b", "limit": 5})]]),
        (
            'use get_weather {"city": "Bern", "unit": "celsius"}',
            [[("get_weather", {"city": "Bern", "unit": "celsius"})]],
        ),
        ("call ping and get_weather for Rome", [[("ping", {}), ("get_weather", {"city": "Rome"})]]),
        ("call get_weather for Rome with {braces}", [[("get_weather", {"city": "Rome"})]]),
        (
            "Find me a flight from Berlin to New York",
            [[("search_flights", {"origin": "Berlin", "destination": "New York"})]],
        ),
        ("call ping 3 times", [[("ping", {})]] * 3),
        ("call ping; call add with a=1, b=2", [[("ping", {})], [("add", {"a": 1, "b": 2})]]),
        ("The weather was fine yesterday.", []),
        ("Hello!", []),
        ("ping-pong is fun", []),
        ("", []),
    ],
)
def test_plan(text: str, steps: list[list[tuple[str, Any]]]) -> None:
    assert planned(text) == steps


def test_nothing_is_called_that_is_not_offered() -> None:
    assert plan("call ping", []) == []


def test_fill_makes_up_what_is_required_in_its_type() -> None:
    everything = offer(
        "f",
        *("a", "b", "c", "d", "e", "g"),
        a="boolean",
        b="array",
        c="integer",
        d={"enum": ["low", "high"]},
        e="string",
        f="string",
        g={"enum": [1, 2]},
    )

    assert json.loads(fill(everything, "as high as possible")) == {
        "a": False,
        "b": [],
        "c": 0,
        "d": "high",
        "e": "as high as possible",
        "g": 1,
    }


def test_written_values_take_the_types_of_the_schema() -> None:
    typed = offer("f", a="boolean", b="number", c="integer", d="string")

    assert json.loads(fill(typed, "", pairs={"a": "True", "b": "1.5", "c": "x", "d": "7"})) == {
        "a": True,
        "b": 1.5,
        "c": "x",
        "d": "7",
    }
