#!/bin/bash
# gpu_sanitizer.sh -- tests/gpu/sanitizer without a GPU: what it makes of logs of compute-sanitizer (those of programs that ran are from NVIDIA's manual of
# version 2026.3, those of a tool that did not come to look were written by 2025.3 and 2026.3), which program it finds, what it copies, how it calls it.
# shellcheck source=tests/support/toy.sh
. "$(dirname "$0")/../support/toy.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
tool=$top/tests/gpu/sanitizer
work=$(mktemp -d "${TMPDIR:-/tmp}/sanitizer.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

# judged NAME STATUS "WORD..." < LOG
judged() {
    cat > log
    expect "$1" 0 "^$3" "$tool" judge "$2" < log
}

# --- clean
judged "memcheck, clean" 0 'clean$' << 'END'
========= COMPUTE-SANITIZER
[ RUN      ] ops: add
[       OK ] ops: add
========= ERROR SUMMARY: 0 errors
END
judged "racecheck, clean" 0 'clean$' << 'END'
========= COMPUTE-SANITIZER
[       OK ] ops: add
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
END
judged "two programs, and leaks of nothing" 0 'clean$' << 'END'
========= COMPUTE-SANITIZER
========= LEAK SUMMARY: 0 bytes leaked in 0 allocations
========= ERROR SUMMARY: 0 errors
========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 0 errors
END

# --- findings
judged "a write out of bounds" 9 'findings Invalid __global__ write of size 4 bytes$' << 'END'
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at out_of_bounds_kernel()+0x90
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x87654320 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0xae66] in memcheck_demo
=========
========= ERROR SUMMARY: 1 error
END
judged "a race, with the status of the tool lost" 0 'findings Error: Race reported between' << 'END'
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in block_error.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in block_error.cu:51 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
END
judged "a hazard, then the time was over" 124 'findings Warning: (Warp Level Programming) Potential RAW hazard' << 'END'
========= COMPUTE-SANITIZER
========= Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x8c in block (0,0,0) :
=========     Write Thread (35,0,0) at sumKernel(int *, int *)+0x90 in warp_error.cu:44
END
for line in "WARNING: Race reported between Write access at RAW()+0xf0 in raceGroupBasic.cu:40" \
    "ERROR: Potential WAW hazard detected at __shared__ 0x0 in block (0,0,0) :" \
    "Uninitialized __global__ memory read of size 4 bytes" \
    " Unused __global__ memory in allocation 0x7fed9f400000 of size 100 bytes" \
    "Barrier error detected. Divergent thread(s) in warp" \
    "Malloc/Free error encountered : Double free" \
    "Leaked 1,024 bytes at 0x7879c0800000" \
    "Program hit invalid copy direction for memcpy (error 21) on CUDA API call to cudaMemcpy." \
    "Potential invalid __shared__ read of size 4 bytes" \
    "ERROR SUMMARY: 2 errors" \
    "RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)" \
    "Warning: Detected overflow of tracked cuda::barrier structures. Results might be incorrect."; do
    printf '========= COMPUTE-SANITIZER\n========= %s\n' "$line" | judged "$line" 124 "findings"
done
judged "findings that were not printed" 9 findings << 'END'
========= COMPUTE-SANITIZER
END

# --- the tool did not look
judged "a program without CUDA, 2025.3" 255 'broken Error: Target application terminated before first instrumented API call' << 'END'
========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
========= Error: couldn't find exit code.
END
judged "a program that crashed, 2026.3" 0 "broken Error: process didn't terminate successfully" << 'END'
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host.
========= Target application terminated before first instrumented API call
========= Tracking kernels launched by child processes requires the --target-processes all option.
END
judged "no memory to look" 0 'broken Internal Sanitizer Error' << 'END'
========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer encountered an error while launching kernel_name and didn't track the launch.
========= ERROR SUMMARY: 0 errors
END
judged "a test that failed" 1 'broken the program ended with status 1' << 'END'
========= COMPUTE-SANITIZER
[  FAILED  ] ops: add
========= Target application returned an error
========= ERROR SUMMARY: 0 errors
END
judged "one program of two without a count" 0 'broken the tool ended without a count' << 'END'
========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 0 errors
========= COMPUTE-SANITIZER
END
judged "nothing" 0 'broken the tool did not start' < /dev/null
judged "its time was over" 124 'cut' << 'END'
========= COMPUTE-SANITIZER
[       OK ] ops: add
END

# --- the program: in the layouts of PyPI's 13.0 and 13.4, and of a bundle
wheel=wheel/nvidia/cu13
mkdir -p $wheel/bin $wheel/compute-sanitizer/x86 old/bin old/lib
# shellcheck disable=SC2016
printf '#!/bin/sh\nDIR="$(dirname -- "$(readlink -f -- "$0")")"\nexec "$DIR"/../compute-sanitizer/compute-sanitizer "$@"\n' > $wheel/bin/compute-sanitizer
cp "$(type -P true)" $wheel/compute-sanitizer/compute-sanitizer
touch $wheel/compute-sanitizer/{libsanitizer-collection,libsanitizer-public,libTreeLauncherPlaceholder,libTreeLauncherTargetInjection,libInterceptorInjectionTarget}.so \
    $wheel/compute-sanitizer/{TreeLauncherSubreaper,TreeLauncherTargetLdPreloadHelper,x86/TreeLauncherSubreaper}
chmod +x $wheel/bin/compute-sanitizer $wheel/compute-sanitizer/TreeLauncher*
cp "$(type -P true)" old/bin/compute-sanitizer
touch old/bin/libsanitizer-collection.so old/lib/{libsanitizer-collection,libsanitizer-public,libTreeLauncherTargetInjection,libInterceptorInjectionTarget}.so
ln -s "$PWD/$wheel/bin/compute-sanitizer" link
expect "the program behind a wheel's script" 0 "^$PWD/$wheel/compute-sanitizer/compute-sanitizer$" env COMPUTE_SANITIZER=$wheel/bin/compute-sanitizer "$tool" find
expect "the same by a link" 0 "^$PWD/$wheel/compute-sanitizer/compute-sanitizer$" env COMPUTE_SANITIZER="$PWD/link" "$tool" find
expect "a program that is no script" 0 "^$PWD/old/bin/compute-sanitizer$" env COMPUTE_SANITIZER=old/bin/compute-sanitizer "$tool" find
COMPUTE_SANITIZER=$wheel/bin/compute-sanitizer "$tool" copy new.copy
COMPUTE_SANITIZER=old/bin/compute-sanitizer "$tool" copy old.copy
expect "copied of 13.4" 0 "^TreeLauncherSubreaper TreeLauncherTargetLdPreloadHelper compute-sanitizer libInterceptorInjectionTarget.so libTreeLauncherPlaceholder.so libTreeLauncherTargetInjection.so libsanitizer-collection.so libsanitizer-public.so $" \
    sh -c 'LC_ALL=C ls new.copy | tr "\n" " "'
expect "it is the program, not the script" 0 "" cmp new.copy/compute-sanitizer $wheel/compute-sanitizer/compute-sanitizer
expect "and can be started" 0 "" test -x new.copy/TreeLauncherSubreaper
expect "copied of 13.0" 0 "^compute-sanitizer libInterceptorInjectionTarget.so libTreeLauncherTargetInjection.so libsanitizer-collection.so libsanitizer-public.so $" sh -c 'LC_ALL=C ls old.copy | tr "\n" " "'

# --- how it is called
for knows in "--report-api-errors arg (=extended)" "nothing"; do
    # shellcheck disable=SC2016
    printf '#!/bin/sh\n[ "$1" = --help ] && echo "%s" && exit\necho "$@"\n' "$knows" > fake
    chmod +x fake
    case $knows in nothing) want="--print-limit 20 --kernel-name-exclude regex=" ;; *) want="--print-limit 20 --report-api-errors no --kernel-name-exclude regex=" ;; esac
    expect "called, where its help has '$knows'" 0 "--tool racecheck --error-exitcode 9 $want.* prog a b$" env COMPUTE_SANITIZER="$work/fake" "$tool" run racecheck prog a b
done
kernels() { find "$top/runner" -name '*.cu' -exec grep -hoP '__global__ void( __launch_bounds__\([^)]*\))? \K\w+' {} + | sort -u; }
expect "there are names of own kernels" 0 "^lstm_gates$" kernels
kernels > names
expect "none of them is left out" 1 "" grep -E "$("$tool" theirs)" names
for name in nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNN ampere_sgemm_128x64_nn sm80_xmma_gemm_f32f32_f32f32 LSTM_elementWise_fp RNN_blockPersist_fp_LSTM gemv2T_kernel_val; do
    expect "$name is" 0 "" grep -qE "$("$tool" theirs)" <<< $name
done

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
