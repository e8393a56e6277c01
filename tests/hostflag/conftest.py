"""One compiled library for all tests, and pages whose words start at 0 and just below 2^32."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostflag_native import HostFlagCore

JUST_BELOW_WRAP = 2**32 - 2


@pytest.fixture(scope="session", autouse=True)
def build_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the library is compiled to, once for the session and for every process that a test starts."""
    directory = tmp_path_factory.mktemp("hostflag-build")
    directory.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTFLAG_BUILD_DIR", str(directory))
        patch.delenv("VLLM_DSPARK_REMOTE_OFL_DIR", raising=False)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        yield directory


@pytest.fixture(params=[0, JUST_BELOW_WRAP], ids=["from-zero", "across-the-wrap"])
def start(request: pytest.FixtureRequest) -> int:
    """The value of every word before a test: round start + 1 is the first."""
    return int(request.param)


@pytest.fixture
def core(start: int) -> Iterator[HostFlagCore]:
    """A page of its own, all words at start."""
    core = HostFlagCore(spin_us=50, nap_us=50)
    for word in (core.gathered_host, core.released_host, core.claimed_host, core.consumed_host):
        core.lib.dsv41_hf_set(word, start)
    yield core
    core.close()
