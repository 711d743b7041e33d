"""Several threads under one session id, and several policies on one thread: what one left is right for the others."""

from concurrent.futures import ThreadPoolExecutor

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import Answer, FakeUpstream, Gate, completion
from tests.proxy.e2e.served import Talk, assistant, long_text, user
from tests.proxy.e2e.test_compress import over, summarising, until

FILL = {"strategy": "context_window", "max_tokens": 1200, "keep_verbatim": "fill", "compact_at": None}


def test_after_a_restart_every_thread_of_a_session_is_known(serve: Serve, upstream: FakeUpstream) -> None:
    upstream.number_summaries("fill")
    first = serve({"fill": FILL})
    talks = [Talk(first, "fill", "two") for _ in range(2)]
    for number, talk in enumerate(talks):
        talk.say(f"This is thread {number}.")
        talk.until("compressed")
    requests = [talk.messages[:-1] for talk in talks]
    sent = [r.body for r in upstream.to("fill")]
    first.close()
    second = serve({"fill": FILL})
    for _ in range(2):
        for messages in requests:
            got = second.post({"model": "fill", "messages": messages}, x_session_id="two")
            assert got.window == ["replayed", "compressed"]
            assert upstream.to("fill")[-1].body in sent
    assert len(upstream.summary_calls()) == 2


def test_after_a_restart_a_thread_goes_on_from_its_summary_though_a_branch_came_first(
    serve: Serve, upstream: FakeUpstream
) -> None:
    upstream.number_summaries("fill")
    first = serve({"fill": FILL})
    talk = Talk(first, "fill", "back")
    talk.until("compressed")
    first.close()
    second = serve({"fill": FILL})
    beginning = {"model": "fill", "messages": talk.messages[:3]}
    assert second.post(beginning, x_session_id="back").window == ["replayed"]
    again = Talk(second, "fill", "back")
    again.messages = talk.messages
    assert again.say("And now?").status == 200
    assert "Summary number 1." in upstream.to("fill")[-1].summaries[0]
    assert len(upstream.summary_calls()) == 1


def test_a_later_system_message_that_another_policy_folded_stands_again(serve: Serve, upstream: FakeUpstream) -> None:
    folds = {"strategy": "compress", "max_tokens": 1000, "keep_recent_turns": 2, "mid_system": "ordinary"}
    proxy = serve({"ordinary": folds | {"compact_at": None}, "keep": {"strategy": "truncate", "max_tokens": 1000}})
    rule = {"role": "system", "content": "From here on be brief."}
    messages = [user(long_text("First", 300)), assistant("Yes."), rule]
    for turn in range(4):
        messages += [user(long_text(f"Turn {turn}", 250)), assistant(f"Fine {turn}.")]
    messages.append(user("And now?"))
    assert proxy.post({"model": "ordinary", "messages": messages}, x_session_id="rule").window == ["compressed"]
    assert rule not in upstream.to("ordinary")[0].messages
    assert proxy.post({"model": "keep", "messages": messages}, x_session_id="rule").window == ["fits"]
    sent = upstream.to("keep")[0].messages
    assert "[Conversation Summary]" in sent[0]["content"]
    assert sent[1] == rule


def test_what_is_erased_while_a_request_waits_for_its_summary_stays_erased(
    serve: Serve, upstream: FakeUpstream
) -> None:
    proxy, hold = serve({"fill": FILL | {"summary_wait": 60}}), Gate()
    talk = Talk(proxy, "fill", "gone")
    talk.messages = over()[:5]
    assert talk.send().status == 200
    upstream.on("fill", summarising(lambda _: Answer([completion("Kept.")], before=hold)))
    talk.messages = over()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(talk.send)
        until(upstream.summary_calls)
        path = f"/admin/sessions/{proxy.session_id('gone').hex()}"
        assert proxy.get(path, method="DELETE").status == 200
        hold.open()
        assert waiting.result().window == ["compressed"]
    until(lambda: proxy.under_way == 0)
    rows = proxy.rows("gone")
    assert (rows.messages, rows.summaries, rows.requests) == ([], [], [])
    assert proxy.metric("transom_storage_errors_total") == 0
    assert talk.send().status == 200
    assert len(proxy.rows("gone").messages) == len(talk.messages) + 1
