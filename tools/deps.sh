#!/bin/sh
# Names every package Hadal needs on Debian 12, with the reason, and installs what is missing.
#
#   tools/deps.sh            what building and running needs
#   tools/deps.sh --mpi      that, and what models on many machines need
#   tools/deps.sh --tests    all that, and what the tests need
#   tools/deps.sh --fuzz     all that, and what fuzzing needs
#   tools/deps.sh --list     prints the names and does nothing
set -eu

build="
gcc              the compiler of this project, and the linker driver of generated libraries (any cc will do)
libc6-dev        headers of the C library
cmake            build description
make             the build tool behind it
pkg-config       finds the libraries below
llvm-19-dev      code generation (the compiler only; nothing of it is in generated libraries)
libjansson-dev   JSON with duplicate-key detection, in the importer and the safetensors reader
zlib1g-dev       the code listings in reports are stored compressed (the compiler only)
libpcre2-dev     regular expressions of tokenizers: Unicode classes, looking ahead (the compiler only)
libutf8proc-dev  Unicode's normal forms and categories, for tokenizers (the compiler only; small, MIT licence)
libedit-dev      lines of hadal chat: editing and history (the command only; BSD licence, where readline is under the GPL)
libxxhash-dev    XXH3 digests that tie a library to its weights (header-only)
"
mpi="
libopenmpi-dev   exchanges between processes of a divided model (libhadal_mpi only)
openmpi-bin      mpirun, which starts them
"
tests="
libmpich-dev     the other MPI that libhadal_mpi is tested with
mpich            its mpirun
libcriterion-dev unit tests
llvm-19-tools    FileCheck and lit
python3          runs lit
g++              generated headers are compiled as C++ too
binutils         nm and readelf, for the allow-list of symbols
dpkg-dev         dpkg-shlibdeps, which finds what the Debian packages depend on
debootstrap      makes the bare Debian on which these are installed
gcc-aarch64-linux-gnu  makes the runtime for aarch64, and links libraries for it
libc6-dev-arm64-cross  headers of the C library there
qemu-user        runs them
chromium         opens the pages of hadal report, without a screen
"
fuzz="
clang            libFuzzer
libclang-rt-dev  its runtime, and those of the sanitizers
"

names() { printf '%s\n' "$1" | awk 'NF { print $1 }'; }

wanted=$(names "$build")
case "${1:-}" in
    --mpi) wanted="$wanted $(names "$mpi")" ;;
    --tests | --list) wanted="$wanted $(names "$mpi") $(names "$tests")" ;;
    --fuzz) wanted="$wanted $(names "$mpi") $(names "$tests") $(names "$fuzz")" ;;
    "") ;;
    *) echo "usage: tools/deps.sh [--mpi|--tests|--fuzz|--list]" >&2; exit 2 ;;
esac
if [ "${1:-}" = --list ]; then
    printf '%s\n' $wanted
    exit 0
fi

missing=
for package in $wanted; do
    state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "deps: all packages are there"
    exit 0
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "deps: need root or sudo to install:$missing" >&2; exit 1; }
    as_root="sudo -n"
    # a password may be asked for where someone can type it
    [ -t 0 ] && as_root=sudo
fi
echo "deps: installing$missing"
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
