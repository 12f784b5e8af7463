"""headway assign, and the files that it reads."""

from __future__ import annotations

import csv
import gzip
import json

import pytest

from headway.cli import main

LOADS = "row,partition,load\n0,0,60\n0,1,30\n0,2,10\n1,0,60\n1,1,50\n1,2,10\n"


@pytest.fixture
def loads(tmp_path):
    path = tmp_path / "loads.csv"
    path.write_text(LOADS)
    return path


def run(capsys, *args):
    code = main(["assign", *map(str, args)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_sequence_in_which_each_row_starts_from_the_last(loads, tmp_path, capsys):
    out = tmp_path / "out.csv"
    code, text, _ = run(capsys, "--loads", loads, "--capacity", 100, "--assignments", out, "--json")
    result = json.loads(text)
    assert code == 0
    assert result["consumers"] == [1, 2] and result["lower_bound"] == [1, 2]
    assert result["moved"] == [0, 1] and result["rscore"] == [0.0, 0.5]
    assert result["means"]["consumers"] == 1.5
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [(r["row"], r["partition"], r["consumer"]) for r in rows] == [
        ("0", "0", "0"),
        ("0", "1", "0"),
        ("0", "2", "0"),
        ("1", "0", "0"),
        ("1", "1", "1"),
        ("1", "2", "0"),
    ]


def test_several_algorithms_side_by_side(loads, capsys):
    code, text, _ = run(capsys, "--loads", loads, "--capacity", 100, "--algorithm", "keep,mwf,bfd", "--json")
    result = json.loads(text)
    assert code == 0 and set(result["algorithms"]) == {"keep", "mwf", "bfd"}
    assert result["algorithms"]["keep"]["cbs"] == 0.0
    code, text, _ = run(capsys, "--loads", loads, "--capacity", 100, "--algorithm", "keep,mwf", "--exact")
    assert code == 0 and "mwf" in text and "optimum" in text


def test_from_a_current_assignment_with_names(loads, tmp_path, capsys):
    current, out = tmp_path / "current.csv", tmp_path / "out.csv"
    current.write_text("partition,consumer\n0,ann\n1,ann\n2,bob\n")
    code, text, _ = run(
        capsys, "--loads", loads, "--capacity", 100, "--current", current, "--assignments", out, "--json"
    )
    assert code == 0 and json.loads(text)["moved"][0] == 1  # bob is dissolved, and comes back
    assert {r["consumer"] for r in csv.DictReader(out.read_text().splitlines())} == {"ann", "bob"}
    again = tmp_path / "again.csv"
    code, text, _ = run(capsys, "--loads", loads, "--capacity", 100, "--current", out, "--assignments", again, "--json")
    assert code == 0  # what was written can be read


def test_a_fixed_number_of_consumers(loads, capsys):
    code, text, _ = run(
        capsys, "--loads", loads, "--capacity", 100, "--consumers", 2, "--algorithm", "range,keep", "--json"
    )
    figures = json.loads(text)["algorithms"]
    assert code == 0 and figures["range"]["busiest"] == [0.9, 1.1] and figures["keep"]["busiest"][1] <= 0.7


def test_a_file_from_a_spreadsheet(tmp_path, capsys):
    path = tmp_path / "loads.csv"
    path.write_bytes(b"\xef\xbb\xbfrow,partition,load\r\n1,0,10\r\n1,1,20\r\n")
    code, text, _ = run(capsys, "--loads", path, "--capacity", 100, "--json")
    assert code == 0 and json.loads(text)["consumers"] == [1]


def test_gzip_and_hot_partitions(tmp_path, capsys):
    path = tmp_path / "loads.csv.gz"
    path.write_bytes(gzip.compress(b"row,partition,load\n1,7,130\n1,8,10\n"))
    code, text, _ = run(capsys, "--loads", path, "--capacity", 100, "--json")
    assert code == 0 and json.loads(text)["hot"] == ["7"]
    assert "7" in run(capsys, "--loads", path, "--capacity", 100)[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("row,partition,load\n", "holds no loads"),
        ("row,partition,lod\n1,1,1\n", "line 1: column load is missing"),
        ("row,partition,load\n1,1,x\n", "line 2: load 'x' is not a number"),
        ("row,partition,load\n1,1,\n", "line 2: load '' is not a number"),
        ("row,partition,load\n1,1,nan\n", "line 2: load nan must be finite"),
        ("row,partition,load\n1,1,-3\n", "line 2: load -3 must be finite"),
        ("row,partition,load\n1,1,3\n1,1,4\n", "line 3: row 1 names partition 1 twice"),
        ("row,partition,load\n1,1,3\n2,1,4\n1,2,4\n", "line 4: row 1 goes on"),
        ("row,partition,load\n1,1\n", "line 2: 2 values under 3 columns"),
    ],
)
def test_bad_files_are_refused_with_line_and_value(tmp_path, capsys, content, message):
    path = tmp_path / "loads.csv"
    path.write_text(content)
    out = tmp_path / "out.csv"
    code, text, err = run(capsys, "--loads", path, "--capacity", 100, "--assignments", out)
    assert code == 1 and text == "" and message in err and not out.exists()


def test_bad_requests_are_refused(loads, tmp_path, capsys):
    assert run(capsys, "--loads", loads, "--capacity", 0)[0] == 1
    assert run(capsys, "--loads", tmp_path / "none.csv", "--capacity", 1)[0] == 1
    code, _, err = run(capsys, "--loads", loads, "--capacity", 1, "--algorithm", "best")
    assert code == 2 and "there are keep" in " ".join(err.split())
    assert run(capsys, "--loads", loads, "--capacity", 1, "--algorithm", "mwf", "--consumers", 2)[0] == 2
    assert run(capsys, "--loads", loads, "--capacity", 1, "--algorithm", "mwf,bfd", "--assignments", "o.csv")[0] == 2
    binary = tmp_path / "loads.csv.gz"
    binary.write_bytes(b"nothing zipped")
    code, _, err = run(capsys, "--loads", binary, "--capacity", 1)
    assert code == 1 and "not a CSV file" in err
    current = tmp_path / "current.csv"
    for content, message in (("partition,consumer\n0,\n", "no name"), ("partition,consumer\n0,a\n0,b\n", "owned by a")):
        current.write_text(content)
        code, _, err = run(capsys, "--loads", loads, "--capacity", 1, "--current", current)
        assert code == 1 and message in err


def test_the_example_in_help_works(capsys):
    from headway.cli import assign

    assert main(assign.EXAMPLE.split()[1:]) == 0
    assert "keep" in capsys.readouterr().out
