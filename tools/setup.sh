#!/bin/sh
# Installs what is missing to build (build), test (test) or check (lint) lever; does nothing when all is there.
#
# On Debian and its children the packages are installed with apt-get, as root or through sudo. Elsewhere the script
# says what is missing and stops.
set -eu

goal=${1:-build}
missing='' # names of Debian packages

need() { # need PACKAGE COMMAND...: the package is wanted when the command fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 && return
    case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac
}
has() { command -v "$1"; }
has_header() { printf '#include <stdio.h>\n#include <%s>\n' "$1" | "${CC:-cc}" -E -; }

need build-essential has "${CC:-cc}"
need build-essential has "${CXX:-c++}"
need build-essential has make
need cmake has cmake
need python3 has python3
need python3-pip python3 -m pip --version
need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
if command -v "${CC:-cc}" >/dev/null; then
    need libcurl4-openssl-dev has_header curl/curl.h
    need libedit-dev has_header histedit.h
    need libxxhash-dev has_header xxhash.h
else
    missing="$missing libcurl4-openssl-dev libedit-dev libxxhash-dev"
fi
if [ "$goal" != build ]; then
    need pkg-config has pkg-config
    if command -v "${CC:-cc}" >/dev/null; then
        need libcmocka-dev sh -c 'find /usr/include /usr/local/include "${PREFIX:-/usr}/include" -name cmocka.h | grep .'
    else
        missing="$missing libcmocka-dev"
    fi
fi
if [ "$goal" = lint ]; then
    need clang has clang
    need clang-format has clang-format
    need clang-tidy has run-clang-tidy
    need cppcheck has cppcheck
fi
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "Missing; by the names of Debian packages:$missing"
    echo "Please install what corresponds to them here, then run this again."
    exit 1
fi
as_root=''
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo "Missing, and neither root nor sudo to install them:$missing"
        exit 1
    }
    as_root=sudo
    [ -t 0 ] || as_root='sudo -n' # nobody is there to type a password
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086  # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
