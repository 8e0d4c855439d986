# Finding accelerator toolkits. Sourced by build.sh. Each function sets `toolkit` (one sentence on what was found) and
# returns 0, or sets `lack` (what was looked for, where, which version) and returns 1.

CUDA_MINIMUM=12.4
CANN_MINIMUM=9.1

# at_least VERSION MINIMUM: compares dotted numbers.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

find_cuda() {
    local nvcc="" place version
    if [ -n "${CUDA_HOME:-}" ]; then
        place="in $CUDA_HOME/bin (CUDA_HOME)"
        [ -x "$CUDA_HOME/bin/nvcc" ] && nvcc="$CUDA_HOME/bin/nvcc"
    else
        place="on PATH and in /usr/local/cuda/bin (CUDA_HOME is not set)"
        nvcc="$(command -v nvcc || true)"
        [ -z "$nvcc" ] && [ -x /usr/local/cuda/bin/nvcc ] && nvcc=/usr/local/cuda/bin/nvcc
    fi
    lack="the CUDA toolkit, version $CUDA_MINIMUM or newer: nvcc was looked for $place"
    if [ -z "$nvcc" ]; then
        lack="$lack and not found"
        return 1
    fi
    version="$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
    if [ -z "$version" ]; then
        lack="$lack, and $nvcc does not tell its version"
        return 1
    fi
    if ! at_least "$version" "$CUDA_MINIMUM"; then
        lack="$lack, and $nvcc is of version $version"
        return 1
    fi
    toolkit="CUDA $version ($nvcc)"
}

find_cann() {
    local root="" place version=""
    if [ -n "${ASCEND_HOME_PATH:-}" ]; then
        place="in $ASCEND_HOME_PATH (ASCEND_HOME_PATH)"
        root="$ASCEND_HOME_PATH"
    else
        place="in /usr/local/Ascend/cann and /usr/local/Ascend/ascend-toolkit/latest (ASCEND_HOME_PATH is not set)"
        for root in /usr/local/Ascend/cann /usr/local/Ascend/ascend-toolkit/latest; do
            [ -d "$root" ] && break
        done
    fi
    lack="CANN, version $CANN_MINIMUM or newer: the compiler bisheng was looked for $place"
    local compiler
    for compiler in "$root/bin/bisheng" "$root/compiler/ccec_compiler/bin/bisheng"; do
        [ -x "$compiler" ] && break
        compiler=""
    done
    if [ -z "$compiler" ]; then
        lack="$lack and not found"
        return 1
    fi
    version="$(sed -n 's/^Version=\([0-9.]*[0-9]\).*/\1/p' "$root/compiler/version.info" 2>/dev/null || true)"
    if [ -z "$version" ] || ! at_least "$version" "$CANN_MINIMUM"; then
        lack="$lack, and $root/compiler/version.info says version '${version:-unknown}'"
        return 1
    fi
    toolkit="CANN $version ($compiler)"
}
