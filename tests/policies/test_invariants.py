"""Valid in, valid out: whatever the history and the policy, a view keeps the contract's invariants."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.policies import clients
from tests.policies.builders import Writer, segment
from tests.policies.clients import Client, body
from tests.policies.histories import Move, acceptable, limits, moves, policies, preambles, writers
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.options import Policy

PROFILE = settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "policies"))
IS_LONG = PROFILE.max_examples > 1_000
pytestmark = pytest.mark.timeout(0 if IS_LONG else 60)


@pytest.mark.parametrize(
    ("does", "strategies"),
    [
        (clients.goes_on, clients.GROWING),
        (clients.goes_on, clients.TIGHT_GROWING),
        (clients.goes_on, clients.LONG_WINDED),
        (clients.answers_late, clients.LATE),
        (clients.answers_late, clients.TIGHT_LATE),
        (clients.breaks_pairs, clients.BROKEN),
        (clients.breaks_pairs, clients.TIGHT_BROKEN),
        (clients.asks_twice, clients.GROWING),
        (clients.asks_twice, clients.TIGHT_GROWING),
        (clients.says_more, clients.LONGER),
        (clients.says_more, clients.TIGHT_LONGER),
    ],
)
def test_whatever_a_client_does_it_gets_valid_views(
    does: Callable[..., None], strategies: tuple[st.SearchStrategy[Any], ...]
) -> None:
    PROFILE(given(*strategies)(does))()


class Conversation(RuleBasedStateMachine):
    """A client that goes on, goes back and asks something else, while limits and the summary model change."""

    @initialize(opening=moves(3), preamble=preambles, policy=policies, writer=writers, limits=limits)
    def open(
        self, opening: list[Move], preamble: list[Message], policy: Policy, writer: Writer, limits: Limits
    ) -> None:
        self.client, self.limits = Client(preamble, policy, writer), limits
        self.messages: list[Message] = []
        self.moves = 0
        self.say([*opening, Move("user", 4, 1, 0)])
        self.first = next(p for p, m in enumerate(self.messages) if m.role == "user") + 1

    def say(self, script: list[Move]) -> None:
        # A place of its own for each move makes each message another one, also after an edit.
        silent = [Move("nothing", 4, 1, 0)] * self.moves
        self.moves += len(script)
        self.messages = body([*self.messages, *acceptable([*silent, *script])])

    @rule(script=moves(4), back=st.integers(0, 3))
    def go_on(self, script: list[Move], back: int) -> None:
        self.say(script)
        self.ask(len(self.messages) - back)
        self.ask(len(self.messages))

    def ask(self, end: int) -> None:
        self.client.request(self.messages[: max(self.first, end)], self.limits)

    @rule(share=st.floats(0, 1))
    def go_back(self, share: float) -> None:
        end = self.first + int((len(self.messages) - self.first) * share)
        self.messages = self.messages[:end]
        while not is_complete(self.messages):
            self.messages.pop()
        self.say([Move("user", 4, 1, 0)])
        self.ask(len(self.messages))

    @rule(limits=limits)
    def change_limits(self, limits: Limits) -> None:
        self.limits = limits
        self.ask(len(self.messages))

    @rule(sizes=st.lists(st.none() | st.integers(5, 60), min_size=1, max_size=3))
    def change_summary_model(self, sizes: list[int | None]) -> None:
        self.client.session.writer.sizes = sizes


def is_complete(messages: Sequence[Message]) -> bool:
    """Tell whether a user may speak next: no call waits for its result."""
    outline = segment(list(messages))
    return not any(map(outline.is_open, outline.groups))


def test_a_conversation_of_any_course_gets_valid_views() -> None:
    run_state_machine_as_test(Conversation, settings=settings(PROFILE, max_examples=PROFILE.max_examples // 4))
