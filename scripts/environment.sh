# Sourced by the scripts in this folder: makes .venv in the repository and installs the package with the
# extras named in EXTRAS. What is there already stays; a call with nothing new installs nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '==> %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 2; }

PYTHON=${PYTHON:-python3}
command -v "$PYTHON" >/dev/null ||
  fail "no '$PYTHON' found; install Python 3.10 or newer, or set PYTHON=/path/to/python3"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "$("$PYTHON" --version) is too old; install Python 3.10 or newer, or set PYTHON=/path/to/python3"

if ! .venv/bin/python -c '' 2>/dev/null; then
  say "making .venv with $("$PYTHON" --version)"
  rm -rf .venv
  "$PYTHON" -m venv .venv || {
    rm -rf .venv
    fail "'$PYTHON -m venv' does not work; install its venv module (Debian: apt-get install python3-venv)"
  }
fi

# One stamp for each set of extras, made of everything that decides what is installed.
wanted=$(cat pyproject.toml setup.py constraints.txt src/eligibility/ops/native/* <(echo "$PWD") | cksum)
is_installed() {  # a set that holds all of EXTRAS, as it is now
  local stamp extra
  for stamp in .venv/installed-*; do
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] || continue
    for extra in ${EXTRAS//,/ }; do
      case ",${stamp#*installed-}," in *",$extra,"*) ;; *) continue 2 ;; esac
    done
    return 0
  done
  return 1
}
if ! is_installed; then
  say "installing eligibility[$EXTRAS] into .venv (about a minute the first time)"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
    -c constraints.txt -e ".[$EXTRAS]" || fail "the installation failed; the lines above say why"
  # pip compiles on one core only; templates and code of other versions of Python fail here, as there
  .venv/bin/python -W ignore -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true
  echo "$wanted" >".venv/installed-$EXTRAS"
fi
export PATH="$PWD/.venv/bin:$PATH"
