from __future__ import annotations

from tests.splitting.bed import Patience


def test_what_still_comes_through_is_late_and_what_stands_still_is_lost() -> None:
    now = [0.0]
    patience = Patience(quiet_s=45.0, longest_s=600.0, clock=lambda: now[0])
    for handled in range(10):  # a record a minute: slow, and not lost
        now[0] += 40.0
        assert not patience.is_over((handled, 7))
    now[0] += 44.0
    assert not patience.is_over((9, 7))
    now[0] += 2.0
    assert patience.is_over((9, 7))


def test_what_never_comes_to_rest_is_bounded() -> None:
    now = [0.0]
    patience = Patience(quiet_s=45.0, longest_s=600.0, clock=lambda: now[0])
    seen = 0
    while not patience.is_over(seen):
        now[0], seen = now[0] + 30.0, seen + 1
    assert 600.0 < now[0] < 700.0
