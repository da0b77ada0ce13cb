#!/bin/sh
# The README, followed to the letter: its spec is examples/tiny/tiny.hadal, its commands work, its C
# program compiles and runs. Then the examples of the commands' help.
#
#   readme.sh SOURCE_FOLDER BUILD_FOLDER WORK_FOLDER
set -eu
source=$1 build=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
ln -s "$source/examples" examples
PATH=$build/bin:$PATH

awk '/^use "layers"/ { on = 1 } /^```/ { on = 0 } on' "$source/README.md" | cmp - examples/tiny/tiny.hadal
# the indented hadal commands after the spec
grep '^    \(hadal [a-z-]* examples/\(tiny\|jargon\)\|python3 examples/\)' "$source/README.md" >commands
if [ -n "${LOADING:-}" ]; then # tests/CMakeLists.txt
    sed -i "s|^    python3|    env $LOADING python3|" commands
elif [ -n "${SANITIZE:-}" ]; then
    sed -i '/^    python3/d' commands
fi
[ "$(wc -l <commands)" -ge 3 ]
sed -i '/^ *hadal report .*--tokens/s/$/ --threads 1/' commands # threads that measure wait for each other where other tests run
sh -eux ./commands
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$source/README.md" >main.c
${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE} -Wall -Wextra -Werror main.c -o main $(grep '^    cc main.c' "$source/README.md" | sed 's/.*main.c//; s/\$PWD/./') -Wl,-rpath,"$PWD/out"
env -u OMP_WAIT_POLICY ./main # its threads wait as a user's do

# what is measured is for tests of its own
for command in init-weights compile $(hadal help | sed -n 's/^  \([a-z-]*\)  .*/\1/p' | grep -vx 'init-weights\|compile\|bench'); do
    hadal "$command" --help | sed -n '/^for example/,/^$/s/^  hadal/hadal/p'
done >commands
[ "$(wc -l <commands)" -ge 15 ]
sh -eux ./commands >told
