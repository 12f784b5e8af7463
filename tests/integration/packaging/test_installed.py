"""What a user installs: wheel and sdist that work away from the checkout, and every step of the Dockerfile.

There is no container engine here, so the Dockerfile's own commands run in a clean folder that stands for its root.
"""

import json
import os
import re
import shlex
import shutil
import site
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from headway.configuration.settings import load

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(sys.executable).parent
NOBODY = 10001


def run(*command, cwd, env=None, **more):
    done = subprocess.run(
        command, cwd=cwd, env=env or os.environ, capture_output=True, text=True, check=False, timeout=300, **more
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Copy what git keeps, and nothing that lies about."""
    folder = tmp_path_factory.mktemp("source")
    for name in run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    """Build a source distribution, and the wheel from it."""
    out = tmp_path_factory.mktemp("dist")
    build = (SCRIPTS / "uv", "build", "--no-build-isolation", "--offline", "--quiet", "--python", sys.executable)
    run(*build, "--out-dir", out, cwd=source)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Install the wheel into an environment of its own, over the dependencies that are here already."""
    place = tmp_path_factory.mktemp("elsewhere") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=place.parent)
    python = place / "bin" / "python"
    run(
        SCRIPTS / "uv", "pip", "install", "--offline", "-q", "--python", python, "--no-deps", built[0], cwd=place.parent
    )
    here = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip())
    dependencies = [p for p in (sysconfig.get_path("purelib"), *site.getsitepackages()) if Path(p).is_dir()]
    (here / "dependencies.pth").write_text("\n".join(dict.fromkeys(dependencies)) + "\n")  # its .pth files are not read
    return python


def outside(python, *arguments, cwd):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HEADWAY", "COV"))}
    return run(python, *arguments, cwd=cwd, env=environment | {"HOME": str(cwd), "OMP_NUM_THREADS": "1"})


def test_the_wheel_has_page_model_and_samples_and_nothing_else(built):
    wheel, sdist = built
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        r"headway/page/index\.html", r"\.data/data/share/headway/zero_shot/card\.json",
        r"\.data/data/share/headway/zero_shot/forecaster\.joblib",
        r"\.data/data/share/headway/data/worldcup98_1min\.csv\.gz",
        r"\.data/data/share/headway/data/worldcup98_NOTICE\.txt", r"licenses/LICENSE",
    ):  # fmt: skip
        assert any(re.search(wanted, n) for n in names), wanted
    assert not [n for n in names if n.startswith(("tests/", "benchmarks/", "docs/"))]
    with tarfile.open(sdist) as archive:
        assert not [n for n in archive.getnames() if "__pycache__" in n or "/.venv/" in n]
    assert wheel.stat().st_size < 3_000_000


def test_the_wheel_works_far_from_the_checkout(installed, tmp_path):
    where = outside(installed, "-c", "import headway; print(headway.__file__)", cwd=tmp_path)
    assert str(ROOT) not in where
    headway = installed.parent / "headway"
    sample = outside(installed, "-c", "from headway.demo_setup import sample_file; print(sample_file())", cwd=tmp_path)
    assert "share/headway/data" in sample
    shipped = outside(installed, "-c", "from forecaster.zero_shot import shipped; print(shipped())", cwd=tmp_path)
    assert shipped.rstrip().endswith("None)"), "there is no reason why it is not there"
    trace = Path(sample.strip()).with_name("nyc_taxi_30min.csv.gz")
    document = json.loads(outside(headway, "forecast", "--input", trace, "--horizon", "2h", "--json", cwd=tmp_path))
    assert document["total"]


def steps(stage):
    """Return (instruction, text) pairs of one stage, continuation lines joined."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    starts = [i for i, line in enumerate(lines) if line[0] == "FROM"]
    return lines[starts[stage] : [*starts[1:], len(lines)][stage]]


def left_out(path):
    """Return whether ``.dockerignore`` keeps a path out of the build; the last rule that fits decides."""
    out = False
    for rule in (ROOT / ".dockerignore").read_text().split():
        pattern = rule.removeprefix("!").split("/")
        anywhere, pattern = pattern[0] == "**", [part for part in pattern if part != "**"]
        for place in (path, *path.parents):  # a star goes no further than a slash
            parts = place.parts[-len(pattern) :] if anywhere else place.parts
            if len(parts) == len(pattern) and all(map(fnmatch, parts, pattern)):
                out = not rule.startswith("!")
    return out


def test_the_build_sees_no_secret_and_nothing_that_it_does_not_need():
    secrets = ("token.read", "write_token", "tls.key", "headway.toml")
    for name in (*secrets, ".venv/bin/python", "tests/conftest.py", ".git/HEAD", "balancer/__pycache__/plan.pyc"):
        assert left_out(Path(name)), name
    for name in ("pyproject.toml", "headway/page/index.html", "data/README.md", "deploy/base/headway.toml"):
        assert not left_out(Path(name)), name
    assert not left_out(next((ROOT / "models" / "shipped").rglob("card.json")).relative_to(ROOT))


def public_python():
    """Return a Python that every user of this machine may run, or None."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        real = Path(candidate).resolve()
        if real.exists() and all(parent.stat().st_mode & 0o001 for parent in real.parents):
            version = run(real, "-c", "import sys; print(sys.version_info >= (3, 11))", cwd="/")
            if version.strip() == "True":
                return real
    return None


@pytest.fixture(scope="module")
def image(source):
    """Run the first stage's commands with a folder in place of the root."""
    # not below pytest's own folder: any pytest that starts on this machine closes that to others, and nobody must pass
    with tempfile.TemporaryDirectory(prefix="headway-image-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        root.chmod(0o755)
        yield build(source, root)


def build(source, root):
    """Run the first stage of the Dockerfile and return where its result lies."""
    work = root / "src"
    work.mkdir()
    # stands for the base image's own Python, which nobody may run
    run(SCRIPTS / "uv", "venv", "-q", "--seed", "--python", public_python() or sys.executable, root / "base", cwd=root)
    path = f"{root}/opt/headway/bin:{root}/base/bin:/usr/bin:/bin"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))} | {"PATH": path}
    for instruction, text in steps(0):
        if instruction == "COPY":
            *names, target = text.split()
            for name in names:
                if name == ".":
                    for file in (p for p in source.rglob("*") if p.is_file() and not left_out(p.relative_to(source))):
                        (work / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copy2(file, work / file.relative_to(source))
                else:
                    (work / target).mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source / name, work / target)
        elif instruction == "RUN":
            command = text.replace("/opt/headway", f"{root}/opt/headway").replace("--no-cache-dir", "").replace(
                "--no-cache ", ""
            )  # fmt: skip
            run("bash", "-euo", "pipefail", "-c", command, cwd=work, env=environment)
    shutil.rmtree(work)
    return root


def test_the_second_stage_runs_as_nobody_on_what_it_may_not_write(image, tmp_path):
    stage = steps(1)
    assert ["USER", str(NOBODY)] in stage
    assert [i for i, _ in stage if i == "COPY"] == ["COPY"], "the build's leftovers stay behind"
    command = shlex.join(json.loads(dict(stage)["ENTRYPOINT"]) + json.loads(dict(stage)["CMD"]))
    assert command == "headway serve"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    state = image / "state"
    state.mkdir()
    identity = {}
    if os.geteuid() == 0 and public_python() is not None:
        os.chown(state, NOBODY, NOBODY)
        identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    before = {p: p.stat().st_mtime_ns for p in (image / "opt").rglob("*")}
    environment = {
        "PATH": f"{image}/opt/headway/bin:/usr/bin:/bin", "HEADWAY_STATE": str(state), "HEADWAY_API__PORT": str(port),
        "HOME": str(state), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    said = tmp_path / "said"
    with said.open("w") as out:
        service = subprocess.Popen(["headway", "serve"], cwd=state, env=environment, stdout=out, stderr=out, **identity)
    health = json.loads(re.search(r"CMD (\[.*\])", dict(stage)["HEALTHCHECK"])[1])
    health = [part.replace("8765", str(port)) for part in health]
    try:
        deadline = time.monotonic() + 120
        while subprocess.run(health, env=environment, capture_output=True, check=False).returncode != 0:
            assert service.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.25)
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60).read().decode()
        assert "<title>Headway" in page
    finally:
        service.terminate()
        service.wait(90)
    assert service.returncode == 0
    assert before == {p: p.stat().st_mtime_ns for p in (image / "opt").rglob("*")}
    kafka = "import confluent_kafka, kafka, grpc, yaml, balancer.actuators.keda"
    run("python", "-c", kafka, cwd=state, env=environment)
    size = sum(p.stat().st_size for p in (image / "opt").rglob("*") if p.is_file() and not p.is_symlink())
    assert size < 700_000_000, f"{size / 1e6:.0f} MB"


def test_compose_gives_settings_that_are_known_and_one_image(tmp_path):
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {"store", "headway"}
    assert "noeviction" in services["store"]["command"]
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        # a process without rights cannot change its user: it must begin as nobody
        assert service.get("user") or ("build" in service and ["USER", str(NOBODY)] in steps(1))
    deployment = next(yaml.safe_load_all((ROOT / "deploy" / "base" / "deployment.yaml").read_text()))
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == services["headway"]["image"]
    given = {k: v for k, v in services["headway"]["environment"].items() if k.startswith("HEADWAY_")}
    for token in ("READ", "WRITE"):
        (tmp_path / token).write_text(f"{token}-token-of-the-test")
        given[f"HEADWAY_API__{token}_TOKEN_FILE"] = str(tmp_path / token)
    (tmp_path / "headway.toml").write_text("")
    settings = load(tmp_path / "headway.toml", given)
    assert settings.store.url == "redis://store:6379/0"
    assert settings.api.host == "0.0.0.0"
