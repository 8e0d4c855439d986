#!/usr/bin/env bash
# Builds and installs DeepInfer from this folder: the core, one backend (and cpu, which always works), the plugins.
#
#   ./build.sh            build and install, then show `deepinfer doctor`
#   ./build.sh demo       build if needed and answer examples/prompts.jsonl with the demo model
#   ./build.sh test       build with the test tools and run every test; arguments for pytest choose tests instead
#   ./build.sh clean      remove .venv and what was built
#
# DEEPINFER_ACCEL=cpu|cuda|ascend chooses the backend; without it the toolkits found decide.
# DEEPINFER_NO_VENV=1 installs into the active interpreter and downloads nothing.
# PYTHON and CXX name the interpreter that makes .venv and the C++ compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. tools/toolkits.sh

say() { printf 'build.sh: %s\n' "$*"; }
fail() { printf 'build.sh: error: %s\n' "$*" >&2; exit 2; }

main() {
    local goal="${1:-build}"
    [ $# -gt 0 ] && shift
    case "$goal" in
        build) [ $# -eq 0 ] || fail "build takes no arguments and got: $*"; build; deepinfer doctor ;;
        demo) [ $# -eq 0 ] || fail "demo takes no arguments and got: $*"; build; demo ;;
        test) build test; run_tests "$@" ;;
        clean) clean ;;
        -h | --help | help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' build.sh ;;
        *) fail "'$goal' is not something to do: choose build, demo, test or clean" ;;
    esac
}

# With `test`, the test tools and the conformance suite too.
build() {
    local for_tests="${1:-}"
    choose_backend
    check_compiler
    if [ "${DEEPINFER_NO_VENV:-0}" != 0 ]; then
        use_active_interpreter "$@"
    else
        use_venv "$@"
    fi
    install_packages
    "$python" tools/build_support.py record "$backend"
}

# --- what to build -----------------------------------------------------------------------------------------------

# Sets `backend`. Nothing has been installed when this refuses.
choose_backend() {
    case "${DEEPINFER_ACCEL:-}" in
        cpu) backend=cpu ;;
        cuda) find_cuda || refuse_toolkit cuda; require_backend cuda ;;
        ascend) find_cann || refuse_toolkit ascend; require_backend ascend ;;
        "") detect_backend ;;
        *) fail "DEEPINFER_ACCEL = '$DEEPINFER_ACCEL' is not allowed: choose cpu, cuda or ascend, or leave it unset" ;;
    esac
}

require_backend() {
    has_backend "$1" || fail "$toolkit was found, but this release has no $1 backend: it has $(backends). Build with" \
        "DEEPINFER_ACCEL=cpu, or use a release that has backends/$1. Nothing was installed."
    backend="$1"
}

detect_backend() {
    local found=() usable=()
    if find_cuda; then found+=("$toolkit"); has_backend cuda && usable+=(cuda); fi
    if find_cann; then found+=("$toolkit"); has_backend ascend && usable+=(ascend); fi
    [ ${#usable[@]} -lt 2 ] || fail "toolkits for ${usable[*]} were found: choose one with DEEPINFER_ACCEL"
    backend="${usable[0]:-cpu}"
    if [ ${#found[@]} -eq 0 ]; then
        say "no accelerator toolkit was found: building for cpu"
    elif [ "$backend" = cpu ]; then
        say "${found[*]} was found, but this release has no backend for it (it has $(backends)): building for cpu"
    else
        say "${found[*]} was found: building for $backend"
    fi
}

refuse_toolkit() {
    local note=""
    has_backend "$1" || note=" Note that this release has no $1 backend in any case: it has $(backends)."
    fail "DEEPINFER_ACCEL=$1 needs $lack. Install it, or say where it is, and run build.sh again;" \
        "DEEPINFER_ACCEL=cpu builds without it.$note Nothing was installed."
}

has_backend() { [ -f "backends/$1/pyproject.toml" ]; }

backends() {
    local names=() file
    for file in backends/*/pyproject.toml; do names+=("$(basename "$(dirname "$file")")"); done
    (IFS=,; printf '%s' "${names[*]}")
}

check_compiler() {
    export CXX="${CXX:-$(command -v c++ || command -v g++ || command -v clang++ || true)}"
    [ -n "$CXX" ] || fail "no C++ compiler was found (c++, g++ and clang++ were looked for on PATH): install one that" \
        "knows C++20, for example with apt-get install g++, or name it in CXX. Nothing was installed."
    printf '#include <concepts>\n#include <span>\nint main() { return std::span<int>{}.size(); }\n' |
        "$CXX" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null ||
        fail "the compiler $CXX cannot compile C++20 ($("$CXX" --version 2>/dev/null | head -n 1 || true)): install a" \
            "newer one (GCC 11 or Clang 14 will do) or name another in CXX. Nothing was installed."
}

# --- the interpreter and its packages -----------------------------------------------------------------------------

# Sets `python` to .venv's, made when it is missing or broken, with all requirements at their pinned versions.
use_venv() {
    python=.venv/bin/python
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        local base
        base="$(find_python)"
        say "making .venv with $base"
        "$base" -m venv --clear .venv >/dev/null 2>&1 ||
            fail "$base cannot make a virtual environment: install its venv module, on Debian and Ubuntu with" \
                "apt-get install python3-venv, or build with DEEPINFER_NO_VENV=1"
    fi
    check_headers
    local files=(requirements-build.txt) stamp=.venv/share/deepinfer/requirements wanted
    [ "${1:-}" = test ] && files+=(requirements-test.txt)
    wanted="$("$python" tools/build_support.py dependencies $(packages); cat constraints.txt "${files[@]}")"
    if [[ "$(cat "$stamp" 2>/dev/null)" != "$wanted"* ]]; then
        say "installing pinned requirements"
        mkdir -p build "$(dirname "$stamp")"
        "$python" tools/build_support.py dependencies $(packages) >build/requirements.txt
        "$python" -m pip install -q -c constraints.txt -r build/requirements.txt $(printf -- '-r %s ' "${files[@]}")
        printf '%s' "$wanted" >"$stamp"
    fi
    pip_options=()
}

# Sets `python` to the active one, which must have everything: nothing is downloaded.
use_active_interpreter() {
    python="$(command -v "${PYTHON:-python3}" || true)"
    [ -n "$python" ] && is_new_enough "$python" ||
        fail "DEEPINFER_NO_VENV=1 builds with the active interpreter, which must be Python 3.11 or newer:" \
            "$(describe_python "${PYTHON:-python3}")"
    check_headers
    local files=(requirements-build.txt) lacking
    [ "${1:-}" = test ] && files+=(requirements-test.txt)
    lacking="$("$python" tools/build_support.py missing $(packages) "${files[@]}")" ||
        fail "$python lacks what this build needs, and DEEPINFER_NO_VENV=1 downloads nothing: $lacking. Install these" \
            "with the image's own means, or build without DEEPINFER_NO_VENV. Nothing was installed."
    pip_options=(--no-index)
    if "$python" -c 'import os, sys, sysconfig
marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
sys.exit(sys.prefix != sys.base_prefix or not os.path.exists(marker))'; then
        pip_options+=(--break-system-packages) # only our own packages are installed, and only by name
    fi
}

find_python() {
    local name
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$name" >/dev/null && is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    fail "Python 3.11 or newer is needed: $(describe_python "${PYTHON:-python3}"). Install one, on Debian and Ubuntu" \
        "with apt-get install python3 python3-venv python3-dev, or name it in PYTHON. Nothing was installed."
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

describe_python() { printf '%s is %s' "$1" "$("$1" --version 2>/dev/null || echo 'not there')"; }

check_headers() {
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
        fail "the headers of $("$python" --version) (Python.h) are not installed: on Debian and Ubuntu" \
            "apt-get install python3-dev brings them"
}

# --- our own packages ----------------------------------------------------------------------------------------------

packages() {
    local accelerated=()
    [ "$backend" = cpu ] || accelerated=("backends/$backend")
    printf '%s\n' . backends/cpu "${accelerated[@]}"
    local file
    for file in plugins/*/pyproject.toml; do [ -f "$file" ] && dirname "$file"; done
    [ "$for_tests" = test ] && printf '%s\n' tests/conformance
    return 0
}

install_packages() {
    local folder log
    mkdir -p build
    for folder in $("$python" tools/build_support.py stale $(packages)); do
        log="build/install-$(basename "$(realpath "$folder")").log"
        say "building and installing $(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/pyproject.toml" | head -n 1)"
        "$python" -m pip install --no-deps --no-build-isolation "${pip_options[@]}" -e "$folder" >"$log" 2>&1 || {
            tail -n 60 "$log" >&2
            fail "$folder could not be installed; the whole log is in $log"
        }
        "$python" tools/build_support.py stamp "$folder"
    done
}

deepinfer() { "$python" -P -c 'import sys; from deepinfer_core.cli.main import main; sys.exit(main())' "$@"; }

# --- the other goals -----------------------------------------------------------------------------------------------

# The examples hold one line that is no request and one prompt that is too long, so run-batch must end with 1.
demo() {
    local answers=build/demo/answers.jsonl code=0
    mkdir -p "$(dirname "$answers")"
    deepinfer run-batch -i examples/prompts.jsonl -o "$answers" --overwrite --model demo || code=$?
    [ "$code" -eq 1 ] || fail "the demo expects exit code 1 from run-batch (two requests are wrong on purpose), got $code"
    "$python" tools/show_answers.py "$answers" 2 || fail "the demo expects two requests to fail, not the ones above"
    say "two requests failed on purpose, as shown, and run-batch ended with 1 to say so; all answers are in $answers"
}

run_tests() {
    local scratch
    scratch="$(mktemp -d)"
    trap "rm -rf '$scratch'" EXIT
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # many small tensors: threads cost more than they give
    PATH="$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))'):$PATH" # cmake, deepinfer
    export PATH
    # Whole files go to the next free worker. Chosen tests run in one process, where a debugger can be used.
    if [ $# -eq 0 ] && "$python" -c 'import xdist' 2>/dev/null; then
        set -- -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
    fi
    "$python" -m pytest --basetemp "$scratch/pytest" "$@"
}

clean() {
    rm -rf .venv build backends/*/build plugins/*/build tests/conformance/build
    say "removed .venv and what was built"
}

main "$@"
