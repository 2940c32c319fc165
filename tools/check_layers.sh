#!/bin/sh
# Checks who includes whom:
#
#     base <- model <- flash <- compute <- engine          spec uses base only; engine joins all
#     cli, bench, examples see lever.h; cli and bench also base/ and their own
#
# llama.h is for model/vocab.c and model/chat.c alone, ggml's headers for model/ and compute/, and every header of lever
# compiles alone. bench/bench_*.c, which time single parts, may see what tests see.
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
    train) echo base spec train ;;
    engine) echo base model flash compute spec train engine ;;
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
            case $file in src/model/vocab.c | src/model/chat.c) ;; *) complain "$file includes $include" ;; esac
            ;;
        ggml*.h | gguf.h)
            case $layer in model | compute) ;; *) complain "$file includes $include" ;; esac
            ;;
        base/* | model/* | flash/* | compute/* | spec/* | train/* | engine/*)
            case $allowed in *" ${include%%/*} "*) ;; *) complain "$file includes $include" ;; esac
            ;;
        esac
    done
done

names=$(for file in $files; do basename "$file"; done | sort | uniq -d)
for name in $names; do complain "there are several files named $name"; done

ggml=${LEVER_LLAMA_INCLUDE:-}
for header in include/lever.h $(find src cli -name '*.h' 2>/dev/null | sort); do
    own=$(sed -n '/^#include/p' "$header")
    case $own in *'<ggml'* | *'"ggml'* | *'llama.h'*) [ -n "$ggml" ] || continue ;; esac
    # shellcheck disable=SC2086  # an optional option
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -Isrc -Icli ${ggml:+-isystem "$ggml"} -fsyntax-only \
        -x c "$header" || complain "$header does not compile alone"
done
exit $failed
