#!/bin/sh
# Installs a build into a prefix of its own and builds examples/embed.c against it in every way that is promised:
# pkg-config with the shared library and with the archive, and find_package with both. Each program then answers with a
# tiny model.
#
#   tests/check_install.sh BUILD SOURCE TINY_MODEL
set -eu

build=$1 source=$2 model=$3
prefix=$build/prefix work=$build/install-check
cc=${CC:-cc} cxx=${CXX:-c++}
rm -rf "$prefix" "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$prefix" >"$work/install.log"

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name lever.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir lever)
warnings='-std=c11 -Wall -Wextra -Wpedantic -Werror'

answers() {
    if ! "$@" "$model" "Write a quicksort in C." 200 >"$work/out" 2>"$work/err"; then
        echo "failed: $*"
        cat "$work/err"
        exit 1
    fi
    grep -q 'tokens/s' "$work/err"
    echo "ok: $1"
}

# shellcheck disable=SC2046,SC2086  # lists of options
{
    $cc $warnings "$source/examples/embed.c" $(pkg-config --cflags --libs lever) -Wl,-rpath,"$libdir" -o "$work/shared"
    $cc $warnings "$source/examples/embed.c" $(pkg-config --cflags lever) "$libdir/liblever.a" \
        $(pkg-config --libs --static lever | sed 's/-llever//') -o "$work/archive"
}
answers "$work/shared"
answers "$work/archive"

cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.20)
project(embed LANGUAGES C)
find_package(lever CONFIG REQUIRED)
foreach(kind lever static)
    add_executable(cmake_\${kind} $source/examples/embed.c)
    target_link_libraries(cmake_\${kind} PRIVATE lever::\${kind})
endforeach()
END
cmake -S "$work" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$work/cmake.log"
cmake --build "$work/cmake" >>"$work/cmake.log" || { cat "$work/cmake.log"; exit 1; }
answers "$work/cmake/cmake_lever"
answers "$work/cmake/cmake_static"

# The header is C++ too.
printf '#include <lever.h>\nint main() { return lever_version() == nullptr; }\n' >"$work/header.cpp"
# shellcheck disable=SC2046
$cxx -Wall -Wextra -Wpedantic -Werror "$work/header.cpp" $(pkg-config --cflags --libs lever) -Wl,-rpath,"$libdir" \
    -o "$work/header"
"$work/header"
echo "ok: C++"
