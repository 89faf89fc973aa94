"""The table of moves: nothing leaves a terminal state, and nothing stays anywhere else for ever."""

import pytest

from penstock.model.lifecycle import MOVES, TERMINAL, WAITING, Move, State

ALIVE = frozenset(State) - TERMINAL

table = pytest.mark.parametrize("move", Move)


def reachable() -> set[State]:
    """Every state a submitted job can come to."""
    found: set[State] = set()
    fresh = set(MOVES[Move.SUBMIT].after)
    while fresh:
        found |= fresh
        fresh = {after for rule in MOVES.values() if rule.before & found for after in rule.after} - found
    return found


def ways_out(state: State) -> set[State]:
    return {after for rule in MOVES.values() if state in rule.before for after in rule.after} - {state}


def test_every_move_has_its_rule() -> None:
    assert set(MOVES) == set(Move)


@table
def test_a_rule_says_who_and_under_which_guard(move: Move) -> None:
    rule = MOVES[move]
    assert rule.who
    assert rule.guard
    assert rule.after


@table
def test_no_move_leaves_a_terminal_state(move: Move) -> None:
    assert not MOVES[move].before & TERMINAL


@pytest.mark.parametrize("state", sorted(ALIVE))
def test_every_other_state_has_a_way_out(state: State) -> None:
    assert ways_out(state)


@pytest.mark.parametrize("state", sorted(ALIVE))
def test_every_job_can_end(state: State) -> None:
    found, fresh = {state}, {state}
    while fresh:
        fresh = {after for one in fresh for after in ways_out(one)} - found
        found |= fresh
    assert found & TERMINAL


@pytest.mark.parametrize("state", State)
def test_every_state_is_reachable(state: State) -> None:
    assert state in reachable()


def test_only_a_submit_and_a_tick_make_a_job() -> None:
    assert [move for move, rule in MOVES.items() if not rule.before] == [Move.SUBMIT, Move.TICK]


def test_only_a_claim_starts_a_job() -> None:
    starts = {move for move, rule in MOVES.items() if State.RUNNING in rule.after and State.RUNNING not in rule.before}
    assert starts == {Move.CLAIM}
    assert MOVES[Move.CLAIM].before == {State.QUEUED}


@pytest.mark.parametrize("move", [Move.RENEW, Move.SETTLE, Move.RELEASE])
def test_an_owner_moves_only_what_runs_and_shows_its_fence(move: Move) -> None:
    assert MOVES[move].before == {State.RUNNING}
    assert "fence" in MOVES[move].guard


@pytest.mark.parametrize("state", State)
def test_states_are_terminal_or_alive(state: State) -> None:
    assert state.terminal == (state in TERMINAL) == (state not in ALIVE)
    assert not WAITING & TERMINAL


def test_the_names_on_the_wire_do_not_change() -> None:
    assert [state.value for state in State] == [
        "scheduled",
        "queued",
        "running",
        "succeeded",
        "failed",
        "cancelled",
        "expired",
    ]
