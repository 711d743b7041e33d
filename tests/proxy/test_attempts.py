"""Other ways to send what an upstream refused: without tools, the summary merged, neighbours merged."""

import json
from typing import Any

import pytest

from tests.proxy.builders import Reply, Scripted, exchange
from transom.policies.view import Summary, View
from transom.proxy.attempts import Attempts, Form, Refused
from transom.proxy.errors import UpstreamAuth
from transom.proxy.exchange import Exchange
from transom.proxy.metrics import Metrics
from transom.proxy.summary_calls import UpstreamOf

SUMMARY = Summary(b"s" * 16, "[Conversation Summary] So far.", 9, 2)
FOLDED = View(2, (), SUMMARY)
CUT = View(2)
SPOKEN = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "One."},
    {"role": "user", "content": "Two?"},
]
FINE = b'{"choices": []}'


def refusal(message: str, status: int = 400) -> Reply:
    return Reply(json.dumps({"error": {"message": message}}).encode(), status=status)


def attempts(*replies: Reply) -> tuple[Attempts, Scripted]:
    upstream = Scripted(*replies)
    return Attempts(UpstreamOf({"direct": upstream}), Metrics()), upstream


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


async def sent(made: Attempts, asked: Exchange) -> Any:
    return await made.send(asked, made.form(asked))


SYSTEM_REFUSALS = [
    "System message must be at the beginning.",
    "System messages are only allowed as the first message",
    "Unexpected role 'system' after role 'user'",
    "Multiple system messages are not supported",
    "only one system message is allowed: only one system prompt",
    "System role not supported",
]


@pytest.mark.parametrize("message", SYSTEM_REFUSALS)
@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_refused_summary_is_merged_into_the_system_message(message: str, status: int) -> None:
    made, upstream = attempts(refusal(message, status), Reply(FINE))
    reply = await sent(made, exchange({"messages": SPOKEN}, FOLDED))
    assert reply.status == 200
    first, second = upstream.messages
    assert roles(first) == ["system", "system", "user"]
    assert roles(second) == ["system", "user"]
    assert second[0]["content"].startswith("Be kind.")
    assert SUMMARY.text in second[0]["content"]
    assert upstream.replies[0].closed


async def test_a_model_that_refused_once_is_not_asked_again() -> None:
    made, upstream = attempts(refusal(SYSTEM_REFUSALS[0]), Reply(FINE), Reply(FINE))
    for _ in range(2):
        await sent(made, exchange({"messages": SPOKEN}, FOLDED))
    assert roles(upstream.messages[2]) == ["system", "user"]


async def test_a_summary_role_that_was_written_stays() -> None:
    made, upstream = attempts(refusal(SYSTEM_REFUSALS[0]))
    reply = await sent(made, exchange({"messages": SPOKEN}, FOLDED, summary_role="system"))
    assert isinstance(reply, Refused)
    assert len(upstream.sent) == 1


@pytest.mark.parametrize("view", [View(), None], ids=["whole", "not windowed"])
async def test_what_the_client_sent_itself_is_its_own_affair(view: View | None) -> None:
    made, upstream = attempts(refusal(SYSTEM_REFUSALS[0]))
    assert isinstance(await sent(made, exchange({"messages": SPOKEN}, view)), Refused)
    assert len(upstream.sent) == 1


ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."


async def test_neighbours_a_cut_created_are_merged_where_roles_must_alternate() -> None:
    messages = [*SPOKEN[1:], {"role": "assistant", "content": "Two."}, {"role": "user", "content": "Three?"}]
    made, upstream = attempts(refusal(ALTERNATE), Reply(FINE), Reply(FINE))
    asked = exchange({"messages": messages}, View(4, (0,)))
    assert (await sent(made, asked)).status == 200
    first, second = upstream.messages
    assert roles(first) == ["user", "user"]
    assert roles(second) == ["user"]
    assert "One?" in str(second[0]["content"])
    assert "Three?" in str(second[0]["content"])
    await sent(made, asked)
    assert upstream.messages[2] == second


async def test_a_summary_of_role_user_is_a_neighbour_too() -> None:
    made, upstream = attempts(refusal(ALTERNATE), Reply(FINE))
    assert (await sent(made, exchange({"messages": SPOKEN}, FOLDED, summary_role="user"))).status == 200
    first, second = upstream.messages
    assert roles(first) == ["system", "user", "user"]
    assert roles(second) == ["system", "user"]
    assert str(second[1]["content"]).index(SUMMARY.text) < str(second[1]["content"]).index("Two?")


async def test_a_refusal_that_remains_is_shown() -> None:
    made, _ = attempts(refusal(ALTERNATE), refusal(ALTERNATE))
    reply = await sent(made, exchange({"messages": SPOKEN}, CUT))
    assert reply == Refused(
        400, json.dumps({"error": {"message": ALTERNATE}}).encode(), {"content-type": "application/json"}
    )


# ---------------------------------------------------------------------- the tool-call cap
TOOLS = [{"type": "function", "function": {"name": "look"}}]
ASKED = {"messages": SPOKEN, "tools": TOOLS, "tool_choice": "auto"}


async def test_at_the_cap_tools_stay_and_none_is_chosen() -> None:
    made, upstream = attempts(Reply(FINE))
    await sent(made, exchange(ASKED, CUT, capped=True))
    body = json.loads(upstream.sent[0].body)
    assert (body["tools"], body["tool_choice"]) == (TOOLS, "none")


@pytest.mark.parametrize("view", [CUT, None])
async def test_a_server_that_knows_no_none_gets_no_tools(view: View | None) -> None:
    made, upstream = attempts(refusal("unknown tool_choice"), Reply(FINE))
    assert (await sent(made, exchange(ASKED, view, capped=True))).status == 200
    body = json.loads(upstream.sent[1].body)
    assert "tools" not in body
    assert "tool_choice" not in body


async def test_both_fallbacks_can_be_needed() -> None:
    made, upstream = attempts(refusal(SYSTEM_REFUSALS[0]), refusal("unknown tool_choice"), Reply(FINE))
    assert (await sent(made, exchange(ASKED, FOLDED, capped=True))).status == 200
    assert roles(upstream.messages[2]) == ["system", "user"]
    assert "tools" not in json.loads(upstream.sent[2].body)


@pytest.mark.parametrize(("capped", "status"), [(False, 400), (True, 429), (True, 500)])
async def test_other_refusals_are_not_tried_again(capped: bool, status: int) -> None:
    made, upstream = attempts(refusal("no", status))
    reply = await sent(made, exchange(ASKED, CUT, capped=capped))
    assert isinstance(reply, Refused)
    assert len(upstream.sent) == 1


async def test_an_idempotency_key_goes_with_the_first_form_alone() -> None:
    made, upstream = attempts(refusal(SYSTEM_REFUSALS[0]), Reply(FINE))
    await sent(made, exchange({"messages": SPOKEN}, FOLDED))
    keys = [dict(request.headers).get("idempotency-key") for request in upstream.sent]
    assert keys == ["once", None]


async def test_our_own_key_refused_is_not_the_clients_affair() -> None:
    made, upstream = attempts(refusal("Incorrect API key provided: sk-1", 401))
    with pytest.raises(UpstreamAuth):
        await made.send(exchange({"messages": SPOKEN}), Form())
    assert upstream.replies[0].closed
