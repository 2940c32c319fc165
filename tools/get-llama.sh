#!/bin/sh
# Builds ggml and libllama once and prints the folder of the installation (include/, lib/*.a) on stdout.
#
#   tools/get-llama.sh [--cc CC] [--cxx CXX] [--source FOLDER] [--portable] [--sanitize thread]
#
#   --source     a source tree of llama.cpp, instead of the pinned one
#   --portable   not for this processor alone
#   --sanitize   with the thread sanitizer inside
#
# The pinned source is the one inside a source package of llama-cpp-python: fetched with pip, checked against the
# checksum below, and nothing but its vendor/llama.cpp is unpacked. The result goes to the user's cache folder, under a
# name made of everything that changes it; an unfinished build never has that name, and two builds at once wait for
# each other.
set -eu

version=0.3.36
checksum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
package=llama_cpp_python-$version

cc=${CC:-cc} cxx=${CXX:-c++} source='' native=ON sanitize=''
while [ $# -gt 0 ]; do
    case $1 in
    --cc) cc=$2; shift ;;
    --cxx) cxx=$2; shift ;;
    --source) source=$2; shift ;;
    --portable) native=OFF ;;
    --sanitize) sanitize=$2; shift ;;
    *) echo "get-llama.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done

say() { echo "$@" >&2; }
die() { say "get-llama.sh: $*"; exit 1; }

# What the compiler sees of the processor. Sorted, because kernels list the same flags in different orders.
processor() {
    [ $native = ON ] || return 0
    grep -m1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null | tr ' \t' '\n\n' | sort
}

name_of_result() {
    {
        echo "$version $sanitize $native 1" # the last number changes when this script builds differently
        "$cxx" --version | head -n 1
        "$cc" -dumpmachine
        processor
        if [ -n "$source" ]; then
            echo "$source"
            find "$source" -name .git -prune -o -type f -name '*.[chm]*' -printf '%P %s %T@\n' | sort
        fi
    } | sha256sum | cut -c 1-16
}

fetch_source() { # into $work/llama.cpp
    archive=$cache/$package.tar.gz
    if ! echo "$checksum  $archive" | sha256sum --check --status 2>/dev/null; then
        say "Fetching the source of ggml and libllama ($package, 73 MiB) ..."
        python3 -m pip --version >/dev/null 2>&1 || die "python3 with pip is needed to fetch it (python3-pip)."
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
            --dest "$work" "llama-cpp-python==$version" >&2 || die "fetching $package failed."
        echo "$checksum  $work/$package.tar.gz" | sha256sum --check --status ||
            die "$package.tar.gz does not have the checksum $checksum: not used."
        mv "$work/$package.tar.gz" "$archive"
    fi
    # -m: some times in the archive lie in the future, which makes build tools run in circles.
    tar -xzmf "$archive" -C "$work" --strip-components=2 "$package/vendor/llama.cpp"
    source=$work/llama.cpp
}

build() {
    flags=''
    [ -z "$sanitize" ] || flags="-fsanitize=$sanitize -g"
    generator='Unix Makefiles'
    if command -v ninja >/dev/null 2>&1; then generator=Ninja; fi
    say "Building ggml and libllama once (two to four minutes on two processors) ..."
    {
        cmake -S "$source" -B "$work/build" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" \
            -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_LIBDIR=lib \
            -DGGML_NATIVE=$native -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF \
            -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF \
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF &&
            cmake --build "$work/build" -j "$(nproc)" &&
            cmake --install "$work/build" --prefix "$work/result"
    } >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; die "the build failed."; }
}

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/lever/deps
result=$cache/llama-$version-$(name_of_result)
if [ ! -d "$result" ]; then
    mkdir -p "$cache"
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$cache/lock"
        flock 9
    fi
    if [ ! -d "$result" ]; then # another build may have finished while we waited
        work=$(mktemp -d "$cache/unfinished.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        trap 'exit 130' INT TERM HUP
        [ -n "$source" ] || fetch_source
        build
        mv "$work/result" "$result"
    fi
fi
echo "$result"
