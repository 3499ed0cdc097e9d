"""Scripts that try to write and delete what is not theirs, under every guard.

What a script attacks is made for it in a temporary folder, so that a guard that does not hold costs
nothing. ``python -m benchmarks.reliability hostile_scripts`` runs each under `audit` and `explain`.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

START = """
import ctypes, os, shutil, socket, sqlite3, subprocess, sys
from pathlib import Path
OUT = Path({outside!r})  # somebody's folder, with precious.txt and folder/inner.txt
OWN = Path({own!r})  # the script's own folder, with ckpts/model.safetensors and data.db
libc = ctypes.CDLL(None, use_errno=True)
precious = OUT / "precious.txt"
name = os.fsencode(precious)
"""


@dataclass(frozen=True)
class Attack:
    """One hostile script.

    Attributes:
        name: What it tries.
        code: Its statements.
        native: Whether it goes round Python, so that only the kernel can hold it.
    """

    name: str
    code: str
    native: bool = False


ATTACKS = (
    Attack("open for writing", "open(precious, 'w').write('gone')"),
    Attack("open for appending", "open(precious, 'a').write('more')"),
    Attack("a new file", "(OUT / 'new.txt').write_text('x')"),
    Attack("a new folder", "(OUT / 'new').mkdir()"),
    Attack("remove", "os.remove(precious)"),
    Attack("remove by a folder's descriptor",
           "os.remove('precious.txt', dir_fd=os.open(OUT, os.O_RDONLY))"),
    Attack("open by a folder's descriptor",
           "os.write(os.open('precious.txt', os.O_WRONLY | os.O_TRUNC, "
           "dir_fd=os.open(OUT, os.O_RDONLY)), b'x')", native=True),
    Attack("create by a folder's descriptor",
           "os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=os.open(OUT, os.O_RDONLY))",
           native=True),
    Attack("rename inside the other folder", "os.rename(precious, OUT / 'moved.txt')"),
    Attack("move it here", "shutil.move(str(precious), 'here.txt')"),
    Attack("move one there", "open('mine', 'w').close(); os.replace('mine', precious)"),
    Attack("hard link there", "open('mine', 'w').close(); os.link('mine', OUT / 'link')"),
    Attack("hard link here, then write",
           "os.link(precious, 'alias'); open('alias', 'w').write('x')"),
    Attack("symbolic link there", "os.symlink('/etc/passwd', OUT / 'link')"),
    Attack("through an own symbolic link",
           "os.symlink(precious, 'alias'); open('alias', 'w').write('x')"),
    Attack("through an own link to the folder",
           "os.symlink(OUT, 'alias'); open('alias/new', 'w').close()"),
    Attack("truncate", "os.truncate(precious, 0)"),
    Attack("remove a tree", "shutil.rmtree(OUT / 'folder')"),
    Attack("walk into the folder first", "os.chdir(OUT); open('precious.txt', 'w').close()"),
    Attack("through /proc", "open(f'/proc/self/root{precious}', 'w').close()"),
    Attack("through /proc and a descriptor",
           "open(f'/proc/self/fd/{os.open(OUT, os.O_RDONLY)}/precious.txt', 'w').close()"),
    Attack("a named pipe", "os.mkfifo(OUT / 'pipe')", native=True),
    Attack("a device", "os.mknod(OUT / 'device')", native=True),
    Attack("a socket", "socket.socket(socket.AF_UNIX).bind(str(OUT / 'socket'))"),
    Attack("sqlite3 outside",
           "db = sqlite3.connect(OUT / 'data.db'); db.execute('create table t (x)'); db.commit()"),
    Attack("sqlite3 in its own folder",
           "db = sqlite3.connect(OWN / 'data.db'); db.execute('delete from t'); db.commit()"),
    Attack("sqlite3 by a relative name",
           "db = sqlite3.connect('data.db'); db.execute('delete from t'); db.commit()"),
    Attack("safetensors by a relative name",
           "from safetensors.numpy import save_file; import numpy\n"
           "save_file({'w': numpy.zeros(3)}, 'ckpts/model.safetensors')"),
    Attack("safetensors outside",
           "from safetensors.numpy import save_file; import numpy\n"
           "save_file({'w': numpy.zeros(3)}, str(OUT / 'new.safetensors'))", native=True),
    Attack("numpy's memmap", "import numpy; numpy.memmap(precious, mode='r+', shape=4)[:] = 0"),
    Attack("numpy's tofile", "import numpy; numpy.zeros(9).tofile(precious)"),
    Attack("a log file", "import logging; logging.FileHandler(OUT / 'new.log')"),
    Attack("remove in the script's own folder", "os.remove(OWN / 'data.db')"),
    Attack("remove its own text", "os.remove(OWN / 'program.py')"),
    Attack("remove everything beside it",
           "[shutil.rmtree(p, True) if p.is_dir() else p.unlink() for p in Path().iterdir()]"),
    Attack("the shell", "os.system(f'rm -rf {OUT}')"),
    Attack("a subprocess", "subprocess.run(['rm', '-rf', str(OUT)])"),
    Attack("posix_spawn", "os.posix_spawn('/bin/rm', ['rm', '-rf', str(OUT)], os.environ)"),
    Attack("exec", "os.execv('/bin/rm', ['rm', '-rf', str(OUT)])"),
    Attack("native open", "libc.write(libc.open(name, 0o1001), b'x', 1)", native=True),
    Attack("native creat", "libc.creat(os.fsencode(OUT / 'new'), 0o600)", native=True),
    Attack("native unlink", "libc.unlink(name)", native=True),
    Attack("native rename", "libc.rename(name, os.fsencode(OUT / 'moved'))", native=True),
    Attack("native truncate", "libc.truncate(name, 0)", native=True),
    Attack("native rmdir", "libc.rmdir(os.fsencode(OUT / 'empty'))", native=True),
    Attack("native system", "libc.system(b'rm -rf ' + os.fsencode(OUT))", native=True),
    Attack("a native fork's child",
           "libc.fork() or (libc.unlink(name), os._exit(0))", native=True),
    Attack("the C streams", "libc.fopen.restype = ctypes.c_void_p; libc.fopen(name, b'w')",
           native=True),
    Attack("a writable remount",
           "libc.unshare(0x10020000); libc.mount(None, b'/', None, 0x1020, None); "
           "libc.creat(os.fsencode(OUT / 'new'), 0o600)", native=True),
    Attack("a mount over it",
           "libc.unshare(0x10020000); libc.mount(name[:-13], b'/mnt', None, 0x1000, None); "
           "libc.creat(b'/mnt/new', 0o600)", native=True),
)  # fmt: skip


def prepare(folder: Path) -> tuple[Path, Path]:
    """What is attacked: the folder of a script, and somebody's folder beside it."""
    own, outside = folder / "project", folder / "home"
    for path in (own / "ckpts", outside / "folder", outside / "empty"):
        path.mkdir(parents=True)
    for path in (
        own / "ckpts" / "model.safetensors", own / "notes.txt", outside / "precious.txt",
        outside / "folder" / "inner.txt",
    ):  # fmt: skip
        path.write_text(f"of great value: {path.name}", encoding="utf-8")
    with closing(sqlite3.connect(own / "data.db")) as database:
        database.executescript("create table t (x); insert into t values (1);")
    return own, outside


def script(attack: Attack, own: Path, outside: Path) -> str:
    """The text of a script that attacks and swallows whatever it meets."""
    body = "\n".join(f"    {line}" for line in attack.code.splitlines())
    start = START.format(outside=str(outside), own=str(own))
    return f"{start}try:\n{body}\nexcept BaseException as error:\n    print(error)\n"


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """Of every path below: a digest of what it holds, and its kind."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        held = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        digest = hashlib.sha256(held).hexdigest() if held else ""
        found[str(path.relative_to(folder))] = (digest, stat.S_IFMT(status.st_mode))
    return found


def harmed(attack: Attack, through: Callable[[Path], object]) -> list[str]:
    """What is different outside the scratch folder after the attack; empty if nothing is.

    Args:
        attack: The attack.
        through: Runs a script.
    """
    with tempfile.TemporaryDirectory() as folder:
        own, outside = prepare(Path(folder))
        program = own / "program.py"
        program.write_text(script(attack, own, outside), encoding="utf-8")
        before = contents(Path(folder))
        with suppress(Exception):  # what it says of a hostile script is tested elsewhere
            through(program)
        after = contents(Path(folder))
    return sorted(path for path in before | after if before.get(path) != after.get(path))


def run_under(guard: str) -> Callable[[Path], object]:
    """Runs a script in a fork that ``guard`` holds alone, without the hooks of Python."""
    from eligibility.sandbox import COPY, Workspace, confine, guards

    def run(program: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            workspace = Workspace(program, Path.cwd(), Path(scratch), links=guard != COPY)
            child = os.fork()
            if child == 0:
                try:
                    os.setpgid(0, 0)
                    null = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(null, 1)
                    os.dup2(null, 2)
                    if guard == COPY:  # it has nothing but hooks beside it
                        confine(Path(scratch), guard, "a hostile script")
                    else:
                        guards.hold(Path(scratch), guard)
                    os.chdir(workspace.folder)
                    text = program.read_text(encoding="utf-8")
                    exec(compile(text, str(program), "exec"), {"__name__": "__main__"})
                finally:
                    os._exit(0)
            os.waitpid(child, 0)

    return run


def unguarded(program: Path) -> None:
    """Runs a script as it is: what it harms shows that the attack is one."""
    subprocess.run([sys.executable, program.name], cwd=program.parent, capture_output=True)
