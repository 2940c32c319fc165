#!/bin/sh
# Checks who includes whom:
#
#     base <- model <- flash <- compute <- engine          spec and phone use base only; engine joins all
#     cli, bench, examples see lever.h; cli and bench also base/ and their own
#
# llama.h is for model/vocab*.c and model/chat.c alone, ggml's headers for model/ and compute/. Every header of lever
# compiles alone; no two files of the library have one name. bench/bench_*.c, which time single parts, may see what tests see.
set -eu
cd "$(dirname "$0")/.."
failed=0

complain() {
    echo "$1"
    failed=1
}

allowed_of() { # the folders of src that a folder may include
    case $1 in
    base) echo base ;;
    model) echo base model ;;
    flash) echo base model flash ;;
    compute) echo base model flash compute ;;
    spec) echo base spec ;;
    phone) echo base phone ;;
    train) echo base spec train ;;
    engine) echo base model flash compute spec phone train engine ;;
    cli | bench) echo base ;;
    examples) echo ;;
    *) echo none ;;
    esac
}

files=$(find src cli bench examples -name '*.[ch]' ! -path 'bench/bench_*.c' 2>/dev/null | sort)
for file in $files; do
    layer=${file#src/}
    layer=${layer%%/*}
    allowed=" $(allowed_of "$layer") "
    for include in $(sed -n 's/^ *# *include *[<"]\([^>"]*\)[>"].*/\1/p' "$file"); do
        case $include in
        llama.h | llama-*.h)
            case $file in src/model/vocab*.c | src/model/chat.c) ;; *) complain "$file includes $include" ;; esac
            ;;
        ggml*.h | gguf.h)
            case $layer in model | compute) ;; *) complain "$file includes $include" ;; esac
            ;;
        base/* | model/* | flash/* | compute/* | spec/* | phone/* | train/* | engine/*)
            case $allowed in *" ${include%%/*} "*) ;; *) complain "$file includes $include" ;; esac
            ;;
        esac
    done
done

names=$(find src -name '*.[ch]' -exec basename {} ';' | sort | uniq -d)
for name in $names; do complain "there are several files named $name in src/"; done

# *_impl.h is no header of its own but the body of several files.
ggml=${LEVER_LLAMA_INCLUDE:-$(tools/get-llama.sh)/include}
for header in include/lever.h $(find src cli -name '*.h' ! -name '*_impl.h' 2>/dev/null | sort); do
    flags=''
    case $header in
    *avx512.h) flags='-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c' ;;
    *avx2.h) flags='-mavx2 -mfma -mf16c' ;;
    esac
    [ -z "$flags" ] || [ "$(uname -m)" = x86_64 ] || continue
    # shellcheck disable=SC2086  # a list of options
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-function -Werror -Iinclude -Isrc -Icli -isystem "$ggml" \
        $flags -fsyntax-only -x c "$header" || complain "$header does not compile alone"
done
exit $failed
