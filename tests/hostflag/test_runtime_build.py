"""Compiling at run time: safe against others on the machine, and working where little is allowed."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hostflag_native import StreamSyncError, load_hostflag
from hostflag_native import private_directory as private_directory_module
from hostflag_native import runtime_build as runtime_build_module
from tests.hostflag.programs import is_alive, run_program
from tests.waiting import until

IS_ROOT = os.geteuid() == 0
NEEDS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="changes owners and mounts: run the tests as root")
OTHER_UID = 54321


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build_directory: Path) -> Path:
    """A compiler that is quick: it copies the library that is built already, and counts its runs in a file.

    While there is a file "hang" beside it, it hangs instead.
    """
    load_hostflag()
    (built,) = build_directory.glob("libdsv41_hostflag-*.so")
    program = tmp_path / "quick-cc"
    program.write_text(
        f"""#!/bin/sh
        echo run >> "{tmp_path}/runs"
        cd "{tmp_path}"
        if [ -e hang ]; then echo $$ > pid; mv pid hung; exec sleep 600; fi
        cd "$OLDPWD"
        while [ "$1" != -o ]; do shift; done
        exec cp "{built}" "$2"
        """
    )
    program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))
    return program


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The three places in an empty folder: build/, cache/ and temporary/; only the last exists."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("HOSTFLAG_BUILD_DIR", str(tmp_path / "build"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary").chmod(0o1777)
    return tmp_path


def _built_in(directory: Path) -> Path:
    (library,) = directory.glob("libdsv41_hostflag-*.so")
    return library


def _runs(compiler: Path) -> int:
    return (compiler.parent / "runs").read_text().count("run")


def test_the_first_choice_is_the_directory_that_was_asked_for(compiler: Path, places: Path) -> None:
    assert load_hostflag()[1] == f"{_built_in(places / 'build')} (compiled at startup)"
    assert stat.S_IMODE((places / "build").stat().st_mode) == 0o700
    assert stat.S_IMODE(_built_in(places / "build").stat().st_mode) & 0o022 == 0


def test_without_one_it_is_the_cache(compiler: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOSTFLAG_BUILD_DIR")
    assert load_hostflag()[1].startswith(str(_built_in(places / "cache" / "hostflag_native")))


def test_the_cache_of_a_home_directory_serves_too(
    compiler: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOSTFLAG_BUILD_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(places / "home"))
    assert load_hostflag()[1].startswith(str(_built_in(places / "home" / ".cache" / "hostflag_native")))


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_without_a_home_it_is_a_private_temporary_directory(
    compiler: Path, places: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    monkeypatch.delenv("HOSTFLAG_BUILD_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", home or "")
    private = places / "temporary" / f"hostflag_native-{os.geteuid()}"
    assert load_hostflag()[1].startswith(str(private))
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_what_was_compiled_once_is_loaded_again(compiler: Path, places: Path) -> None:
    load_hostflag()
    load_hostflag()
    assert _runs(compiler) == 1


def test_another_compiler_gets_a_library_of_its_own(compiler: Path, places: Path) -> None:
    load_hostflag()
    compiler.write_text(compiler.read_text() + "# newer\n")
    load_hostflag()
    assert len(list((places / "build").glob("libdsv41_hostflag-*.so"))) == 2


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722, 0o1777])
def test_a_directory_that_others_can_write_is_refused(compiler: Path, places: Path, mode: int) -> None:
    (places / "build").mkdir()
    (places / "build").chmod(mode)
    assert load_hostflag()[1].startswith(str(places / "cache"))
    assert list((places / "build").iterdir()) == []


def test_a_symlink_to_a_directory_is_refused(compiler: Path, places: Path) -> None:
    (places / "elsewhere").mkdir(mode=0o700)
    (places / "build").symlink_to(places / "elsewhere")
    assert load_hostflag()[1].startswith(str(places / "cache"))
    assert list((places / "elsewhere").iterdir()) == []


@NEEDS_ROOT
def test_a_directory_of_another_user_is_refused(compiler: Path, places: Path) -> None:
    (places / "build").mkdir(mode=0o700)
    os.chown(places / "build", OTHER_UID, -1)
    assert load_hostflag()[1].startswith(str(places / "cache"))


@NEEDS_ROOT
def test_a_planted_directory_in_the_temporary_one_is_passed_over(
    compiler: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOSTFLAG_BUILD_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME")
    planted = places / "temporary" / f"hostflag_native-{os.geteuid()}"
    planted.mkdir(mode=0o700)
    os.chown(planted, OTHER_UID, -1)
    origin = load_hostflag()[1]
    assert origin.startswith(str(places / "temporary" / "hostflag_native-"))
    assert not origin.startswith(str(planted) + "/")


def _plant(compiler: Path, places: Path) -> Path:
    """The name that a library gets, for something else to stand there."""
    load_hostflag()
    name = _built_in(places / "build")
    name.unlink()
    return name


@NEEDS_ROOT
def test_a_planted_library_of_another_user_is_replaced_not_loaded(compiler: Path, places: Path) -> None:
    planted = _plant(compiler, places)
    planted.write_bytes(b"planted")
    os.chown(planted, OTHER_UID, -1)
    load_hostflag()
    assert planted.read_bytes()[:4] == b"\x7fELF"
    assert planted.stat().st_uid == os.geteuid()


def test_a_planted_library_that_others_can_write_is_replaced_not_loaded(compiler: Path, places: Path) -> None:
    planted = _plant(compiler, places)
    planted.write_bytes(b"planted")
    planted.chmod(0o766)
    load_hostflag()
    assert planted.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("rest", [b"", b"\x7fELF", b"half a library"])
def test_half_a_library_is_replaced(compiler: Path, places: Path, rest: bytes) -> None:
    planted = _plant(compiler, places)
    planted.write_bytes(rest)
    planted.chmod(0o700)
    load_hostflag()
    assert len(planted.read_bytes()) > 10_000


def test_another_library_under_the_name_is_replaced(compiler: Path, places: Path) -> None:
    planted = _plant(compiler, places)
    subprocess.run(["cc", "-shared", "-x", "c", "-o", planted, os.devnull], check=True)
    planted.chmod(0o700)
    assert load_hostflag()[0].dsv41_hf_version() == 2


def test_a_planted_symlink_is_replaced_and_its_target_left_alone(compiler: Path, places: Path) -> None:
    planted = _plant(compiler, places)
    (places / "target").write_bytes(b"precious")
    planted.symlink_to(places / "target")
    load_hostflag()
    assert not planted.is_symlink()
    assert (places / "target").read_bytes() == b"precious"


def test_a_planted_symlink_as_lock_is_not_followed(compiler: Path, places: Path) -> None:
    planted = _plant(compiler, places)
    lock = planted.with_name(planted.name + ".lock")
    lock.unlink()
    lock.symlink_to(places / "target")
    assert load_hostflag()[1].startswith(str(places / "cache"))
    assert not (places / "target").exists()


def test_nothing_usable_is_an_error_that_says_why_for_each_place(
    compiler: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "temporary").rmdir()
    for name in ("build", "cache", "temporary"):
        (places / name).write_text("a file in the way")
    monkeypatch.setattr("tempfile.tempdir", str(places / "temporary"))
    private_directory_module._directory_of_this_process.cache_clear()
    with pytest.raises(StreamSyncError) as raised:
        load_hostflag()
    assert f"{places}/build: File exists" in str(raised.value)
    assert f"{places}/cache/hostflag_native: Not a directory" in str(raised.value)
    assert "set HOSTFLAG_BUILD_DIR to a directory that only this user can write" in str(raised.value)


@NEEDS_ROOT
def test_read_only_and_noexec_directories_are_passed_over(compiler: Path, places: Path) -> None:
    """Real mounts, in a mount namespace of their own."""
    program = "import sys; from hostflag_native import load_hostflag; print(load_hostflag()[1])"
    mounts = (
        f"mkdir {places}/build {places}/cache && mount -t tmpfs -o ro,mode=0700 none {places}/build && "
        f'mount -t tmpfs -o noexec,mode=0700 none {places}/cache && exec "$@"'
    )
    command = ["unshare", "-m", "sh", "-c", mounts, "sh", sys.executable, "-c", program]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"{places}/temporary/hostflag_native-")


@NEEDS_ROOT
def test_a_user_without_passwd_entry_and_home_can_build(compiler: Path, places: Path) -> None:
    said = run_program(
        f"""
        import hostflag_native.runtime_build, tempfile
        os.environ.pop("HOME", None)
        os.environ["HOSTFLAG_BUILD_DIR"] = os.environ["XDG_CACHE_HOME"] = ""
        os.setgid({OTHER_UID}); os.setuid({OTHER_UID})
        print(HostFlagCore().lib_origin)
        """,
        **(os.environ | {"CC": "", "TMPDIR": "/tmp"}),
    )
    directory = Path(f"/tmp/hostflag_native-{OTHER_UID}")
    assert said.startswith(f"{directory}/libdsv41_hostflag-{OTHER_UID}-")
    subprocess.run(["rm", "-r", directory], check=True)


def test_a_killed_compile_blocks_nobody(compiler: Path, places: Path) -> None:
    """Its lock ends with it, although its compiler may live on and its temporary file stays."""
    (places / "hang").touch()
    program = "from hostflag_native import load_hostflag; load_hostflag()"
    with subprocess.Popen([sys.executable, "-c", program]) as killed:
        subprocess.run(["sh", "-c", f"until [ -e {places}/hung ]; do sleep 0.02; done"], check=True, timeout=20)
        killed.kill()
    (places / "hang").unlink()
    assert load_hostflag()[1].startswith(str(places / "build"))
    os.kill(int((places / "hung").read_text()), signal.SIGKILL)


def test_eight_processes_at_once_compile_once(compiler: Path, places: Path) -> None:
    program = "from hostflag_native import load_hostflag; print(load_hostflag()[0].dsv41_hf_version())"
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["2"] * 8
    assert _runs(compiler) == 1
    assert [path.name for path in (places / "build").iterdir() if path.name.startswith(".")] == []


def test_no_compiler_is_said(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(places))
    with pytest.raises(StreamSyncError, match=r"no C compiler \(cc, gcc and clang on PATH\) to build"):
        load_hostflag()


def test_a_compiler_that_is_asked_for_and_missing_is_said(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/such/cc -m64")
    with pytest.raises(StreamSyncError, match=r"no C compiler \(CC=/no/such/cc -m64\)"):
        load_hostflag()


def test_a_compiler_named_from_the_working_directory_is_found(
    compiler: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(compiler.parent)
    monkeypatch.setenv("CC", f"./{compiler.name}")
    assert load_hostflag()[1].startswith(f"{places}/build/")


@pytest.mark.parametrize(
    ("first_line", "asked", "said"),
    [
        ("#!/no/such/interpreter", "{}", r"{} does not start \(No such file or directory\)"),
        ("no program", "{}", r"{} does not start \(Exec format error\)"),
        ("#!/bin/sh", '{} "', r'CC={} " is not a command \(No closing quotation\)'),
    ],
    ids=["no-interpreter", "no-program", "open-quote"],
)
def test_a_compiler_that_does_not_start_is_said(
    places: Path, monkeypatch: pytest.MonkeyPatch, first_line: str, asked: str, said: str
) -> None:
    program = places / "odd-cc"
    program.write_text(first_line)
    program.chmod(0o755)
    monkeypatch.setenv("CC", asked.format(program))
    with pytest.raises(StreamSyncError, match=said.format(program)):
        load_hostflag()


def test_a_compiler_that_fails_is_said_with_its_words(compiler: Path, places: Path) -> None:
    compiler.write_text("#!/bin/sh\necho hostflag.c:1: no such thing >&2\nexit 4\n")
    with pytest.raises(StreamSyncError, match=r"quick-cc ended with 4: hostflag\.c:1: no such thing"):
        load_hostflag()


def test_a_compiler_that_hangs_is_ended_with_its_children_and_said(
    compiler: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_build_module, "COMPILE_LIMIT_SECONDS", 0.3)
    compiler.write_text(f"#!/bin/sh\nsleep 600 & echo $! > {places}/child\nwait\n")
    with pytest.raises(StreamSyncError, match=r"quick-cc took over 0\.3 s"):
        load_hostflag()
    child = int((places / "child").read_text())
    until(lambda: not is_alive(child))
