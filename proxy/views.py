"""Turn a decided view into the payloads of one upstream request; the only place where policies and the wire meet."""

from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.options import Policy
from transom.policies.render import Spoken
from transom.policies.view import Summary, View
from transom.proxy.wire.edit import append_text, replace_content, text_message
from transom.proxy.wire.messages import fragments


def payloads(history: History, view: View, policy: Policy, *, merged: bool) -> list[bytes]:
    """Return the messages to send: preamble, summary, kept messages, each in the client's own bytes.

    `merged` appends the summary to the last system message instead of giving it a message of its own, for models whose
    chat template allows only one.
    """
    sent = [m.payload for m in history.preamble]
    if view.summary_message is not None:
        _add_summary(sent, history, view.summary_message, policy, merged=merged)
    messages = history.messages
    if not (view.substitutes or view.recalled):
        sent.extend([messages[p].payload for p in view.head])
        if view.omitted:
            sent.extend([m.payload for p, m in enumerate(messages[view.start :], view.start) if p not in view.omitted])
        else:
            sent.extend([m.payload for m in messages[view.start :]])
        return sent
    for position in view.positions(len(history)):
        if view.recalled is not None and view.recalled.before == position:
            sent.append(text_message("user", view.recalled.text))
        substitute = view.substitutes.get(position)
        payload = messages[position].payload
        sent.append(payload if substitute is None else replace_content(payload, substitute.text))
    return sent


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
