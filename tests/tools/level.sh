# Sourced by scripts that run one case at one level, with $level set. Sets $flags, the options of `hadal run` for the
# level, $limit, how far logits may be off (each script says why), and $best, the best level of this machine. Ends the script
# with 77 if this machine cannot run $level.
case $level in
    interpret) flags=--interpret limit=1e-6 ;;
    amx) flags="--cpu-level $level --machine unit_rows=2" limit=1e-4 # prompts of tests are short
        grep -q avx512_bf16 /proc/cpuinfo || exit 77
        # libraries that are linked from now on have the unit's instructions emulated
        grep -q amx_tile /proc/cpuinfo ||
            export CC="$CC -Wl,-z,muldefs -Wl,-u,hrt_cpuid_here $HADAL_BUILD/lib/libhadal_amx_machine.a -lm" ;;
    avx512) flags="--cpu-level $level" limit=1e-4
        grep -q avx512vl /proc/cpuinfo || exit 77 ;;
    avxvnni) flags="--cpu-level $level" limit=1e-4
        grep -q avx_vnni /proc/cpuinfo || exit 77 ;;
    avx2) flags="--cpu-level $level" limit=1e-4
        grep -q avx2 /proc/cpuinfo || exit 77 ;;
    *) flags="--cpu-level $level" limit=1e-4 ;;
esac
best=avx512
grep -q avx512vl /proc/cpuinfo || best=avx2
