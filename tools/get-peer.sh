#!/bin/sh
# Builds llama.cpp's own programs once, as the peer in measurements, and prints the folder that holds them on stdout:
# llama-bench, llama-completion (text under mmap) and llama-quantize (makes the models that are measured).
#
#   tools/get-peer.sh [--source FOLDER] [--check]
#
#   --source   a source tree of llama.cpp, instead of the pinned one
#   --check    build nothing: print the folder if it is there, else fail
#
# The source is the one that lever's own ggml is built from (tools/get-llama.sh), but the build is as upstream ships it:
# OpenMP, all flags of this processor, repacking, llamafile's kernels. A peer is measured at its best or not at all.
# Only what has no part in computing is left out (server, user interface, network).
set -eu

version=0.3.36
checksum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
package=llama_cpp_python-$version
programs='llama-bench llama-completion llama-quantize llama-speculative-simple'

source='' check=no
while [ $# -gt 0 ]; do
    case $1 in
    --source) source=${2:?--source wants a folder}; shift ;;
    --check) check=yes ;;
    *) echo "get-peer.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done

say() { echo "$@" >&2; }
die() { say "get-peer.sh: $*"; exit 1; }

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/lever
cc=${CC:-cc} cxx=${CXX:-c++}

# A processor or a compiler of another kind wants another build.
name_of_result() {
    {
        echo "$version $source 1" # the last number changes when this script builds differently
        "$cxx" --version | head -n 1
        grep -m1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null | tr ' \t' '\n' | sort
    } | sha256sum | cut -c 1-16
}

# The archive is shared with tools/get-llama.sh, and checked whoever fetched it.
fetch_source() { # into $work/llama.cpp
    archive=$cache/deps/$package.tar.gz
    if ! echo "$checksum  $archive" | sha256sum --check --status 2>/dev/null; then
        say "Fetching the source of llama.cpp ($package, 73 MiB) ..."
        python3 -m pip --version >/dev/null 2>&1 || die "python3 with pip is needed to fetch it (python3-pip)."
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
            --dest "$work" "llama-cpp-python==$version" >&2 || die "fetching $package failed."
        echo "$checksum  $work/$package.tar.gz" | sha256sum --check --status ||
            die "$package.tar.gz does not have the checksum $checksum: not used."
        mkdir -p "$cache/deps"
        mv "$work/$package.tar.gz" "$archive"
    fi
    # -m: some times in the archive lie in the future, and the build would configure for ever.
    tar -xzmf "$archive" -C "$work" --strip-components=2 "$package/vendor/llama.cpp"
    source=$work/llama.cpp
}

build() { # into $work/result
    say "Building llama.cpp's programs once (about six minutes on two processors) ..."
    {
        # shellcheck disable=SC2086 # the programs are several words
        cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DBUILD_SHARED_LIBS=OFF -DGGML_CCACHE=OFF \
            -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_MTMD=OFF \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=ON -DLLAMA_OPENSSL=OFF &&
            cmake --build "$work/build" -j "$(nproc)" --target $programs
    } >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; die "the build failed."; }
    mkdir -p "$work/result"
    for program in $programs; do cp "$work/build/bin/$program" "$work/result/"; done
}

result=$cache/peer/llama.cpp-$version-$(name_of_result)
if [ ! -d "$result" ]; then
    [ $check = no ] || die "not built yet ($result)."
    mkdir -p "$cache/peer"
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$cache/peer/lock"
        flock 9
    fi
    if [ ! -d "$result" ]; then # another build may have finished while we waited
        work=$(mktemp -d "$cache/peer/unfinished.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        trap 'exit 130' INT TERM HUP
        [ -n "$source" ] || fetch_source
        build
        mv "$work/result" "$result"
    fi
fi
echo "$result"
