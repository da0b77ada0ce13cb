#!/bin/sh
# package.sh BUILD EXAMPLES WORK: the Debian packages, which cpack makes of a build: what they hold and depend on; then, on a bare
# Debian 12 of debootstrap's, they are installed, compile a model, run it, link a program, and leave nothing when they are removed.
#
# What is bare is made in a chroot, so that root, debootstrap and a mirror are needed: 77 (skipped) where they are not. HADAL_MIRROR is
# the mirror, http://deb.debian.org/debian if it is not set; HADAL_BARE a folder that debootstrap --variant=minbase has made before.
set -eu
build=$1 examples=$2 work=$3 root=$3/root
mirror=${HADAL_MIRROR:-http://deb.debian.org/debian}
skip() { echo "$1: the packages are not installed"; exit 77; }
clean() { [ ! -d "$root" ] || rm -rf --one-file-system "$root"; }

[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || skip "this is no Debian of amd64"
command -v cpack >/dev/null && command -v dpkg-shlibdeps >/dev/null || skip "there is no cpack, or no dpkg-shlibdeps"
clean
rm -rf "$work"
mkdir -p "$work"
(cd "$build" && cpack -B "$work/packages" >"$work/cpack.log") || { cat "$work/cpack.log"; exit 1; }
cd "$work/packages"
hadal=$(echo hadal_*_amd64.deb) dev=$(echo libhadal-dev_*_amd64.deb)

# what is opened and called is named, what is linked is found, and nothing of MPI or for builders is among it
needs=$(dpkg-deb -f "$hadal" Depends)
echo "$hadal: $needs"
for package in libllvm19 gcc libc6-dev libc6 libgomp1 libjansson4 libpcre2-8-0 libutf8proc2 libedit2 zlib1g; do
    echo "$needs" | grep -q "\(^\|, \)$package\( (\|,\|\$\)" || { echo "it does not depend on $package"; exit 1; }
done
! echo "$needs" | grep -q 'mpi\|llvm-19\|cmake\|python' || exit 1
[ "$(dpkg-deb -f "$dev" Depends)" = "hadal (= $(dpkg-deb -f "$hadal" Version))" ]
dpkg-deb -c "$hadal" >"$work/files"
dpkg-deb -c "$dev" >>"$work/files"
for file in bin/hadal lib/libhadalrt.a share/hadal/std/layers.hadal share/man/man1/hadal.1 include/hadal/hadal.h lib/pkgconfig/hadal.pc; do
    grep -q " \./usr/$file\$" "$work/files" || { echo "/usr/$file is in neither package"; exit 1; }
done
for deb in *.deb; do
    package=${deb%%_*}
    dpkg-deb --fsys-tarfile "$deb" | tar xO "./usr/share/doc/$package/copyright" >"$work/copyright"
    grep -q '^License: Expat$' "$work/copyright" && grep -qF "$(sed -n 's/^Copyright (c) /Copyright: /p' "$examples/../LICENSE")" "$work/copyright" ||
        { cat "$work/copyright"; echo "the copyright file of $package is not made of LICENSE"; exit 1; }
done
! grep -v ' \./\(usr/.*\)\?$\|^l.* \./usr/' "$work/files" || exit 1

[ "$(id -u)" = 0 ] || skip "this is not root"
command -v debootstrap >/dev/null || [ -n "${HADAL_BARE:-}" ] || skip "there is no debootstrap"
trap clean EXIT
if [ -n "${HADAL_BARE:-}" ]; then
    cp -a "$HADAL_BARE" "$root"
else
    debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/bootstrap.log" 2>&1 ||
        { tail -3 "$work/bootstrap.log"; skip "debootstrap of $mirror failed"; }
fi
[ ! -e /etc/resolv.conf ] || cp -L /etc/resolv.conf "$root/etc/resolv.conf"
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
in_root apt-get update >"$work/apt.log" 2>&1 || { tail -3 "$work/apt.log"; skip "the mirror has no lists"; }

cp "$hadal" "$dev" "$root/root/"
in_root apt-get install -y --no-install-recommends "/root/$hadal" "/root/$dev" >>"$work/apt.log" 2>&1 || { tail -20 "$work/apt.log"; exit 1; }
mkdir "$root/work"
cp -r "$examples/jargon" "$root/work/"
in_root hadal compile /work/jargon -o /work/out/jargon -q
in_root hadal run /work/out/jargon --tokens 104,97,99,107,101,114 --logits /work/logits.npy -q
in_root cc -O2 -I/work/out /work/jargon/generate.c -L/work/out -Wl,-rpath,/work/out -ljargon -lm -o /work/generate
in_root /work/generate --weights /work/out/jargon.weights --prompt 'hacker: n. ' --tokens 20 --temperature 0
cat >"$root/work/version.c" <<'C'
#include <hadal/hadal.h>
#include <stdio.h>
int main(void) {
    hadal_session *s = hadal_open();
    puts(hadal_version());
    hadal_close(s);
    return s ? 0 : 1;
}
C
in_root cc /work/version.c -lhadalc -o /work/version
in_root /work/version
"$build/bin/hadal" run "$examples/jargon" --tokens 104,97,99,107,101,114 --logits "$work/logits.npy" -q
cmp "$work/logits.npy" "$root/work/logits.npy"

in_root apt-get purge -y hadal libhadal-dev >>"$work/apt.log" 2>&1 || { tail -20 "$work/apt.log"; exit 1; }
left=$(find "$root" -xdev -iname '*hadal*' ! -path "$root/root/*" ! -path "$root/work/*")
[ -z "$left" ] || { echo "what is left of them: $left"; exit 1; }
echo "installed, used and removed"
