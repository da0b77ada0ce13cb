#!/bin/sh
# places.sh HADAL SPEC FOLDER: no linker in PATH, and temporary folders that cannot be written, or of which nothing may be executed.
set -eu
hadal=$1 spec=$2 dir=$3
rm -rf "$dir" && mkdir -p "$dir/out" "$dir/mount"
"$hadal" init-weights "$spec" -o "$dir/w.safetensors"
rejects() { # WORDS COMMAND..
    words=$1; shift
    if "$@" > "$dir/said" 2>&1; then echo "taken: $*"; exit 1; fi
    grep -q -- "$words" "$dir/said" || { echo "$* does not say: $words"; cat "$dir/said"; exit 1; }
}
compile="$hadal compile $spec -w $dir/w.safetensors --march baseline -o $dir/out/m"
run="$hadal run $spec -w $dir/w.safetensors --tokens 1,2"
for command in "$compile" "$run"; do
    rejects 'cause: No such file or directory' env -u CC PATH=/nowhere $command
    rejects 'hint: install a C compiler.*--linker' env -u CC PATH=/nowhere $command
    rejects 'cause: Permission denied' env CC=/etc/passwd $command
done
rejects 'hint: it said nothing' env CC=false $compile
rejects 'lgomp' env CC="$dir/cc" sh -c "printf '#!/bin/sh\necho cannot find -lgomp >&2\nexit 1\n' > $dir/cc && chmod +x $dir/cc && $compile"
grep -q 'hint: .*libgomp' "$dir/said" || { cat "$dir/said"; exit 1; }
[ -z "$(ls -A "$dir/out")" ] || { ls -A "$dir/out"; exit 1; }
env CC='  ' $compile -q # spaces name no linker
env -u CC PATH=/nowhere "$hadal" run "$spec" -w "$dir/w.safetensors" --interpret --tokens 1,2 > /dev/null
rejects 'hint: TMPDIR names the folder' env TMPDIR=/dev/null $run
# needs the right to mount
if unshare -m true 2> /dev/null && unshare -m mount -t tmpfs -o noexec none "$dir/mount" 2> /dev/null; then
    rejects 'hint: nothing may be executed.*noexec' unshare -m sh -c "mount -t tmpfs -o noexec none $dir/mount && TMPDIR=$dir/mount $run"
fi
