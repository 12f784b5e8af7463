"""What stands in the document before any script: the overview's own words, escaped, and nothing behind a token."""

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from forecaster.forecast import NoForecast
from headway.api.server import create_app
from headway.configuration.settings import Settings
from tests.unit.headway.conftest import NOW, a_plan, a_snapshot


def fill(application):
    def change(view):
        view.plan, view.snapshot = a_plan(), a_snapshot()

    application.board.update("orders", "plan", change, NOW)


def test_groups_stand_in_the_document_with_their_words(application, client):
    fill(application)
    why = NoForecast("bills", NOW, "1 of 24 hours is recorded", NOW + timedelta(hours=23))
    application.board.update("bills", "forecast", lambda v: v.forecasts.update(bills=why), NOW)
    text = client.get("/").text
    assert ">all 2 fine</p>" in text and "<!--summary-->" not in text and "Reading the groups" not in text
    assert "1 / 2 / 3" in text and "2 → 3 members now: q95 is 40 records/s" in text and "gate closed" in text
    assert "no forecast yet: 1 of 24 hours is recorded; possible from Tue 6 Jan 08:00" in text


@pytest.mark.parametrize(("state", "said"), [("problem", "1 of 2 need attention"), ("acting", "1 acting now")])
def test_the_first_line_says_whether_anything_is_wrong(application, client, state, said):
    fill(application)
    if state == "problem":
        application.board.problem("orders", "arrivals", "<b>kafka</b> is away")
    else:
        until = NOW + timedelta(minutes=1)
        application.board.update("orders", "plan", lambda v: setattr(v, "acting_until", until), NOW)
    text = client.get("/").text
    assert f">{said}</p>" in text
    assert "<b>kafka" not in text and ("arrivals: &lt;b&gt;kafka&lt;/b&gt; is away" in text) is (state == "problem")


def test_without_groups_and_behind_a_token_the_page_says_that_it_reads(application, client):
    for name in application.board.names:
        application.board.remove(name)
    assert ">no groups</p>" in client.get("/").text
    secret = Settings(api={"read_token": "r", "write_token": "w"}, groups={"orders": {"topics": ["orders"]}})
    application.settings = secret
    application.board.add("orders", ("orders",))
    text = TestClient(create_app(application)).get("/").text
    assert "Reading the groups" in text and 'id="first"' not in text


def test_the_document_is_sent_compressed_to_who_takes_that(client):
    answer = client.get("/", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip" and "Accept-Encoding" in answer.headers["vary"]
    plain = client.get("/", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.text == answer.text
