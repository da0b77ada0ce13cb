#!/bin/sh
# run.sh MPIRUN FLAVOUR RANKS_PROGRAM OUT_DIR RANKS SCENARIO: one scenario (comm/scenarios.c) with
# MPI. FLAVOUR (openmpi, mpich) says how this mpirun is told to leave the others alone when a rank
# dies.
set -eu
if [ "$1" = --child ]; then
    shift
    trap '' USR1 # how the others hear of it, whose default is to end them
    "$@" || exit $?
    exit 0
fi
mpirun=$1 flavour=$2 program=$3 dir=$4 ranks=$5 scenario=$6

case $flavour in
    openmpi)
        options="--oversubscribe"
        [ "$(id -u)" != 0 ] || options="$options --allow-run-as-root"
        [ "$scenario" != kill ] || options="$options --enable-recovery" ;;
    mpich)
        options=
        [ "$scenario" != kill ] || options="-disable-auto-cleanup" ;;
    *) echo "run.sh: what is $flavour?" >&2; exit 2 ;;
esac
# MPICH's mpirun ends all when it sees a process die of a signal: it sees a shell whose child has died
shell=
[ "$flavour-$scenario" != mpich-kill ] || shell="sh $0 --child"
mkdir -p "$dir"
out=$dir/$flavour-$scenario-$ranks
rm -f "$out".*
# a minute is far beyond all deadlines: what takes longer hangs
timeout -k 5 60 "$mpirun" $options -n "$ranks" $shell "$program" "$scenario" "$out" > "$out.log" 2>&1 || [ $? != 124 ] ||
    { echo "it hangs"; cat "$out.log"; exit 1; }

failed=0 rank=0
while [ "$rank" -lt "$ranks" ]; do
    if [ "$scenario" = kill ] && [ "$rank" = 1 ]; then
        [ ! -e "$out.1" ] || { echo "rank 1 was not killed"; failed=1; }
    else
        said=$(cat "$out.$rank" 2> /dev/null || echo "nothing")
        [ "$said" = ok ] || { echo "$scenario, rank $rank of $ranks: $said"; failed=1; }
    fi
    rank=$((rank + 1))
done
[ $failed = 0 ] || cat "$out.log"
exit $failed
