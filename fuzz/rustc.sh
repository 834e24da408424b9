#!/bin/sh
# Cargo calls this instead of rustc in builds by run.sh: it adds libFuzzer's coverage to the crate only, so that dependencies are the same
# as in other builds. The coverage is an LLVM pass that the stable compiler has too; cargo-fuzz sets the same flags.
rustc=$1
shift
case " $* " in
    *" --crate-name kube_fanout "*)
        exec "$rustc" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
            -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
            -Cllvm-args=-sanitizer-coverage-trace-compares
        ;;
esac
exec "$rustc" "$@"
