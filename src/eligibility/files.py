"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from eligibility.errors import OutputError

_PARTIAL = ".partial"


def write_atomically(path: str | Path, content: str | bytes) -> Path:
    """Write ``content`` to ``path``: afterwards the file is the old one or the new one, whole.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and the file is
    renamed over ``path``; then the folder is flushed. Missing folders are made. Text is written as
    UTF-8.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_atomically(folder / "runs" / "note.txt", "solved").read_text()
        'solved'
    """
    path = Path(path)
    binary = content.encode("utf-8") if isinstance(content, str) else content
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=_PARTIAL
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(binary)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
        _sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        if temporary is not None:  # an interrupt leaves nothing behind either
            Path(temporary).unlink(missing_ok=True)
    return path


def check_writable(path: str | Path) -> None:
    """Raise unless a file can be written to ``path``: before the hours that its content takes.

    Nothing is left behind; folders that are missing are made when the file is written.

    Example:
        >>> check_writable("a/new/folder/curve.png")
        >>> check_writable("/")
        Traceback (most recent call last):
        eligibility.errors.OutputError: cannot write `/`: got Is a directory, expected ...
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        folder = path.parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(path, error) from error


def remove_partial_files(folder: str | Path) -> None:
    """Remove what processes that were killed while they wrote have left in ``folder``.

    Only for a folder that nobody else is writing to.
    """
    for left in Path(folder).glob(f".*{_PARTIAL}"):
        left.unlink(missing_ok=True)


def unwritable(path: Path, error: OSError) -> OutputError:
    """The error for a place that the system refuses."""
    return OutputError(
        f"cannot write `{path}`",
        error.strerror or str(error),
        "a writable place",
        "choose another folder, free some space, or change the permissions",
    )


def _sync_folder(folder: Path) -> None:
    """Bring the new name of a file to the disk: its bytes alone would not survive a power cut."""
    if os.name == "nt":  # where folders cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without that
            raise
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def relative_to_here(file: str) -> Path:
    """The path relative to the working folder, if it is within."""
    path = Path(file)
    inside = path.is_absolute() and path.is_relative_to(Path.cwd())
    return path.relative_to(Path.cwd()) if inside else path
