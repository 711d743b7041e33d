"""Turn a decided view into the payloads of one upstream request; the only place where policies and the wire meet."""

from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.options import Policy
from transom.policies.render import Spoken
from transom.policies.view import Summary, View
from transom.proxy.wire.edit import append_text, prepend_content, replace_content, text_message
from transom.proxy.wire.messages import fragments

BEFORE_ALL = -2  # a place that is no neighbour of any position


def payloads(history: History, view: View, policy: Policy, *, merged: bool, alternate: bool) -> list[bytes]:
    """Return the messages to send: preamble, summary, kept messages, each in the client's own bytes.

    `merged` appends the summary to the last system message instead of giving it a message of its own, and `alternate`
    merges neighbours of role user that the cut created into the later one's front: for models whose chat template
    allows one system message only, or demands that roles alternate.
    """
    sent = [m.payload for m in history.preamble]
    if view.summary_message is not None:
        _add_summary(sent, history, view.summary_message, policy, merged=merged)
    messages = history.messages
    if not (view.substitutes or view.recalled or alternate):
        sent.extend([messages[p].payload for p in view.head])
        if view.omitted:
            sent.extend([m.payload for p, m in enumerate(messages[view.start :], view.start) if p not in view.omitted])
        else:
            sent.extend([m.payload for m in messages[view.start :]])
        return sent
    # Position of the user message that stands last in `sent`, if one does; a summary's is before all others.
    last_user = BEFORE_ALL if view.summary_message is not None and _by_user(history, policy, merged=merged) else None
    for position in view.positions(len(history)):
        message, substitute = messages[position], view.substitutes.get(position)
        payload = message.payload if substitute is None else replace_content(message.payload, substitute.text)
        if view.recalled is not None and view.recalled.before == position:
            recalled = text_message("user", view.recalled.text)
            if alternate:
                payload = prepend_content(recalled, payload)
            else:
                sent.append(recalled)
        if alternate and message.role == "user" and last_user is not None and last_user != position - 1:
            payload = prepend_content(sent.pop(), payload)
        sent.append(payload)
        last_user = position if message.role == "user" else None
    return sent


def _by_user(history: History, policy: Policy, *, merged: bool) -> bool:
    return summary_role(history, policy, merged=merged) == "user"


def _add_summary(sent: list[bytes], history: History, summary: Summary, policy: Policy, *, merged: bool) -> None:
    role = summary_role(history, policy, merged=merged)
    if role == "merged" and sent:
        sent[-1] = append_text(sent[-1], summary.text)
    else:
        sent.append(text_message("system" if role == "merged" else role, summary.text))


def summary_role(history: History, policy: Policy, *, merged: bool) -> str:
    """Return the role of the summary message, or `merged`."""
    if policy.summary_role != "auto":
        return policy.summary_role
    if merged:
        return "merged"
    return history.preamble[-1].role if history.preamble else "system"


def spoken(message: Message) -> Spoken:
    """Open a message for the summariser."""
    opened = fragments(message.payload)
    calls = [(call.name, call.arguments) for call in opened.calls]
    return Spoken(opened.role, opened.texts, calls, opened.answers, opened.name)


def content_text(message: Message) -> str:
    """Return a message's text, for comparing results."""
    return "\n".join(fragments(message.payload).texts)
