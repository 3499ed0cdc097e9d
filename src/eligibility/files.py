"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from eligibility.errors import OutputError


def write_atomically(path: str | Path, content: str | bytes) -> Path:
    """Write ``content`` to ``path``: afterwards the file is the old one or the new one, whole.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and the file is
    renamed over ``path``. Missing folders are made. Text is written as UTF-8.

    Args:
        path: Where to write.
        content: What to write.

    Returns:
        ``path`` as a ``Path``.

    Raises:
        OutputError: The folder cannot be made or the file cannot be written.

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
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(binary)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise OutputError(
            f"cannot write `{path}`",
            error.strerror or str(error),
            "a writable place",
            "choose another folder, free some space, or change its permissions",
        ) from error
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
