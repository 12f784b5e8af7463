from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.reasons import rate_in_words


@given(st.floats(1e-3, 1e9))
def test_a_rate_is_never_written_with_an_exponent(rate: float) -> None:
    text = rate_in_words(rate)
    assert "e" not in text and float(text.replace(",", "")) == pytest.approx(rate, rel=6e-3)
