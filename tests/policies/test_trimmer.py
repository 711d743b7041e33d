from tests.policies.builders import Writer, ask, exchanges, finished, policy, thread
from transom.policies.compress import Compress
from transom.policies.limits import Limits
from transom.policies.trimmer import Trimmer, TrimRequest, TrimResult, unchanged
from transom.policies.truncate import Truncate
from transom.policies.view import Size, View


class LastMessage:
    """Keep nothing but the newest message: as short as a trimmer of one's own may be."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        view = View(start=len(request.history) - 1)
        return TrimResult(view, trimmed=view != request.view, persist=False)


class Retelling:
    """Have everything but the newest message summarised."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        summary = await request.summarize(range(len(request.history) - 1))
        if summary is None:
            return unchanged(request)
        return TrimResult(request.view.folded(summary, (), ()), trimmed=True, persist=True)


def test_built_in_and_own_trimmers_fit_the_same_port() -> None:
    trimmers: list[Trimmer] = [Compress(), Truncate(), LastMessage(), Retelling()]
    request = ask(thread(*exchanges(5)), limits=Limits(tokens=50), policy=policy(keep_recent_turns=1))
    assert all(finished(trimmer.trim(request)).trimmed for trimmer in trimmers)


def test_a_trimmer_may_leave_the_view_as_it_was() -> None:
    view = View(start=2)
    request = ask(thread(*exchanges(5)), view, limits=Limits(tokens=50))
    assert unchanged(request) == TrimResult(view, trimmed=False, persist=False)


def test_a_request_knows_the_size_of_its_view() -> None:
    request = ask(thread(*exchanges(5)), View(start=2), limits=Limits())
    assert request.size == Size(80, 8)


def test_a_summary_stands_for_its_span_unless_said_otherwise() -> None:
    request = ask(thread(*exchanges(5)), limits=Limits(tokens=50))
    view = finished(Retelling().trim(request)).view
    assert view.summary is not None
    assert (view.start, view.summary.upto) == (9, 9)


def test_a_trimmer_goes_on_without_a_summary() -> None:
    request = ask(thread(*exchanges(5)), limits=Limits(tokens=50), writer=Writer([None]))
    assert not finished(Retelling().trim(request)).trimmed
