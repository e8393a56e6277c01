"""The validating policies keep to the CEL of the oldest supported API server, as its own compiler sees it.

celcheck/ is a small Go program around the API server's CEL packages, which can be set to an older version's language
and libraries. The API server of the other tests would accept newer CEL.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import CHART, rendered
from tests.cluster import go_programs, places
from tests.cluster.console import ClusterError

SOURCES = Path(__file__).parent / "celcheck"
OLDEST = "1.30"

BUILD_SECONDS = 1200
"""Limit for the first build: the API server's packages are compiled for it, minutes on a slow machine."""


@pytest.fixture(scope="module")
def celcheck() -> Path:
    """The path of the checker, built now where the cache lacks it."""
    try:
        go, version = go_programs._go()
    except ClusterError as error:
        pytest.skip(str(error))
    digest = hashlib.sha256(version.encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    program = places.cache_dir() / "programs" / f"celcheck-{digest.hexdigest()[:12]}"
    if not program.is_file():
        partial = program.with_suffix(".partial")
        program.parent.mkdir(parents=True, exist_ok=True)
        build = [str(go), "build", "-mod=readonly", "-trimpath", "-ldflags", "-s -w", "-o", str(partial), "."]
        done = subprocess.run(build, cwd=SOURCES, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        partial.rename(program)
    return program


def check(celcheck: Path, manifests: str, version: str) -> subprocess.CompletedProcess[str]:
    """What the checker says of these manifests."""
    return subprocess.run([celcheck, version], input=manifests, capture_output=True, text=True, check=False)


@pytest.mark.timeout(BUILD_SECONDS)
def test_validating_policies_compile_on_the_oldest_api_server(celcheck: Path) -> None:
    done = check(celcheck, rendered(), OLDEST)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split()[0]) > 40


@pytest.mark.timeout(BUILD_SECONDS)
def test_the_check_notices_newer_cel(celcheck: Path) -> None:
    newer = rendered().replace('variables.foreignKeys.join(", ")', "variables.new.transformList(k, v, k).join()")
    done = check(celcheck, newer, OLDEST)
    assert done.returncode == 1
    assert "undeclared reference to 'transformList'" in done.stdout


def test_the_chart_asks_for_that_api_server() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"] == f">={OLDEST}.0-0"
