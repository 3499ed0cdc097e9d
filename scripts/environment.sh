# Sourced by the scripts beside it: makes .venv in the repository and installs the package with
# the extras the caller names in EXTRAS. A second call with nothing changed installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

PYTHON=${PYTHON:-python3}
command -v "$PYTHON" >/dev/null || fail "no '$PYTHON' found; install Python 3.10 or newer, or set PYTHON=/path/to/python3"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "$("$PYTHON" --version) is too old; install Python 3.10 or newer, or set PYTHON=/path/to/python3"

if [ ! -x .venv/bin/python ]; then
  say "making .venv with $("$PYTHON" --version)"
  "$PYTHON" -m venv .venv || { rm -rf .venv; fail "'$PYTHON -m venv' does not work; install the venv module (Debian: apt-get install python3-venv)"; }
fi

wanted=$(cat pyproject.toml constraints.txt <(echo "$EXTRAS $PWD") | cksum)
if [ "$(cat .venv/installed 2>/dev/null)" != "$wanted" ]; then
  say "installing eligibility[$EXTRAS] into .venv (a minute or two the first time)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$EXTRAS]" ||
    fail "the installation failed; the lines above say why"
  echo "$wanted" > .venv/installed
fi
export PATH="$PWD/.venv/bin:$PATH"
