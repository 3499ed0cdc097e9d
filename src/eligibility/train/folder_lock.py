"""One writer a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

from pathlib import Path

from eligibility.errors import OutputError

# Stays in the folder: if it were removed, two processes could hold two files of one name.
LOCK = ".lock"


class FolderLock:
    """Holds a folder for this process from its construction on; makes it if there is none."""

    def __init__(self, folder: Path) -> None:
        from filelock import FileLock, Timeout

        self._path = folder / LOCK
        self._lock = FileLock(self._path, timeout=0, thread_local=False)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout as error:
            raise OutputError(
                f"the folder `{folder}`",
                "a folder that another process is writing to",
                "a separate folder for each training",
                "wait for the other process to end, or choose another folder with --out",
            ) from error
        except OSError as error:
            raise OutputError(
                f"the folder `{folder}`",
                error.strerror or str(error),
                "a folder that can be written",
                "choose another with --out, or change its permissions",
            ) from error

    def release(self, *, remove: bool = False) -> None:
        """Let others have the folder; ``remove`` the file too if the folder is about to go."""
        if remove:
            self._path.unlink(missing_ok=True)
        self._lock.release()
