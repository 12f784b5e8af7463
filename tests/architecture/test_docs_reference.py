"""What the HTTP interface and ``/metrics`` have is in the reference, and the page on HTTP leaves out no route."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from fastapi import FastAPI

from headway.api.server import ROUTERS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def reference():
    spec = spec_from_file_location("reference", DOCS / "reference.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def routes():
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    return [(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods]


def test_every_route_is_in_the_reference(reference, routes):
    text = "\n".join(reference.http())
    assert len(routes) > 25
    assert [route for route in routes if "## {} {}\n".format(*route) not in text] == []


def test_the_page_on_http_names_every_route(routes):
    table = (DOCS / "http.md").read_text()
    said = set()
    for cell in re.findall(r"^\| (`.*?) \| ", table, re.M):
        paths = re.findall(r"/[\w/{}*]+", cell.replace("{g}", "{group}").replace("{t}", "{topic}"))
        said |= {(method, path) for method in re.findall(r"\b[A-Z]{3,6}\b", cell) for path in paths}
    # a thing of a list is named with its list
    missing = [(m, p) for m, p in routes if not {(m, p), (m, re.sub(r"/{\w+}$", "", p))} & said]
    assert missing == []


def test_metrics_of_the_schedule_are_in_the_reference(reference):
    text = "\n".join(reference.metrics())
    assert "`headway_job_next_run_timestamp_seconds`" in text and "`headway_group_lag_records`" in text


def test_when_a_partition_is_split_is_said_by_the_share_that_the_group_sets(reference):
    (row,) = [line for line in reference.settings() if line.startswith("| `split_lead`")]
    assert "`hot_share`" in row and "0.8" not in row
