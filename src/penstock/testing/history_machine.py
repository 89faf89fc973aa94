"""A job store that grows old beside a model: whatever is folded, the counts of the past follow from those of now."""

from collections import Counter
from datetime import datetime, timedelta

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from penstock.model.journal import EventRetention, History
from penstock.testing.journal import Line, depths, history_lines, read_all_history
from penstock.testing.store_machine import NewStore, StoreMachine

KEEP_EVENTS = EventRetention(events=timedelta(hours=1), history=timedelta(days=365))
ages = st.sampled_from([5, 10, 10, 10, 20, 30, 60, 3600, 3 * 3600, 50 * 3600])


class HistoryMachine(StoreMachine):
    """As `StoreMachine`, with longer times between moves and a journal that is pruned."""

    def __init__(self) -> None:
        super().__init__()
        self._past: dict[datetime, dict[Line, int]] = {}

    @rule(seconds=ages)
    def advance(self, seconds: int) -> None:
        """Let time pass, and note the counts of the instant at which it stops: no move has happened there yet."""
        self._clock.advance(timedelta(seconds=seconds))
        jobs = self._model.jobs.values()
        lines = Counter((job.line.queue, job.line.type, job.state) for job in jobs)
        self._past[self._clock.now()] = history_lines(self._store, lines)

    @rule(limit=st.sampled_from([1, 3, 1000]))
    def prune_journal(self, limit: int) -> None:
        for shard in self._store.shards():
            self._run(shard.prune_journal(KEEP_EVENTS, limit))

    @invariant()
    def the_past_agrees(self) -> None:
        history = self._run(read_all_history(self._store))
        assert depths(history) == {}
        for at, lines in self._past.items():
            if not _within_a_span(history, at):
                assert depths(history, at) == lines


def _within_a_span(history: History, at: datetime) -> bool:
    return any(row.at < at < row.at + row.span for row in history.rows)


def history_machine(new_store: NewStore) -> type[HistoryMachine]:
    """A state machine over new stores of one backend; run its `TestCase`."""
    return type("BackendHistoryMachine", (HistoryMachine,), {"new_store": staticmethod(new_store)})
