#!/bin/sh
# All checks that do not run the program; `make lint`. --format rewrites the C files instead.
#
# Two builds stand behind it: build/test with the default compiler, the one `make test` uses too, and build/lint with
# clang, both with warnings as errors. clang-tidy and cppcheck read the commands of the latter.
set -eu
cd "$(dirname "$0")/.."
jobs=$(nproc)

c_files() { find include src cli bench tests examples -name '*.[ch]' 2>/dev/null | sort; }
step() { echo "--- $*"; }

if [ "${1:-}" = --format ]; then
    c_files | xargs clang-format -i
    exit
fi

failed=''
check() { # check NAME COMMAND...: runs all checks, also after one has failed
    step "$1"
    name=$1
    shift
    "$@" || failed="$failed, $name"
}

build_gcc() {
    cmake -S . -B build/test -DLEVER_LLAMA="${LEVER_LLAMA:-AUTO}" >/dev/null &&
        cmake --build build/test -j "$jobs"
}

# ggml is not what is checked: the one that build/test uses will do.
build_clang() {
    prefix=$(dirname "$(sed -n 's/^LEVER_LLAMA_INCLUDE:PATH=//p' build/test/CMakeCache.txt)")
    cmake -S . -B build/lint -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
        -DLEVER_LLAMA="$prefix" >/dev/null &&
        cmake --build build/lint -j "$jobs"
}

run_tidy() {
    run-clang-tidy -quiet -p build/lint -j "$jobs" "^$PWD/(src|cli|bench|tests|examples)/" >build/lint/tidy.log 2>&1 &&
        return
    grep -E '(warning|error):' build/lint/tidy.log | sort -u || tail build/lint/tidy.log
    return 1
}

# What it says about uninitialised variables, null pointers and bounds is off: it sees less than clang's analyser, and
# was wrong wherever it spoke.
run_cppcheck() {
    mkdir -p build/lint/cppcheck
    cppcheck --quiet -j "$jobs" --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
        --cppcheck-build-dir=build/lint/cppcheck --suppress=missingInclude --suppress=normalCheckLevelMaxBranches \
        --suppress=uninitvar --suppress=ctuuninitvar --suppress=nullPointer --suppress=ctunullpointer \
        --suppress=arrayIndexOutOfBoundsCond --suppress=invalidPointerCast \
        -D_GNU_SOURCE -Iinclude -Isrc -Icli src cli examples
}

# The shared library exports the public functions and nothing else; across files, internal names carry a prefix.
check_symbols() {
    wrong=$(nm -D --defined-only build/test/liblever.so | awk '$3 !~ /^lever_/ { print $3 }')
    [ -z "$wrong" ] || { echo "exported by the shared library:" $wrong; return 1; }
    wrong=$(nm -g --defined-only build/test/liblever.a | awk 'NF == 3 && $3 !~ /^(lever|lv)_/ { print $3 }' |
        grep -v -E '^__(asan|tsan|ubsan|odr_asan)' | sort -u)
    [ -z "$wrong" ] || { echo "global in the archive, without lever_ or lv_ in front:" $wrong; return 1; }
}

check format sh -c 'find include src cli bench tests examples -name "*.[ch]" | xargs clang-format --dry-run -Werror'
check 'build with the default compiler' build_gcc
check 'build with clang' build_clang
check layers env LEVER_LLAMA_INCLUDE="$(sed -n 's/^LEVER_LLAMA_INCLUDE:PATH=//p' build/test/CMakeCache.txt)" \
    tools/check_layers.sh
check symbols check_symbols
check clang-tidy run_tidy
check cppcheck run_cppcheck

[ -z "$failed" ] || { echo "lint: not clean: ${failed#, }"; exit 1; }
echo "lint: clean"
