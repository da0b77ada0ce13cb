# fails_on.sh FILE [PATTERN [CODE]]: fails with CODE, or by the signal of that name, if FILE holds PATTERN.
# The pattern may also come in the environment, where the file's name must come last.
if [ $# -ge 2 ]; then PATTERN=$2; fi
grep "$PATTERN" "$1" > /dev/null || exit 0
grep -o '= [a-z_]*' "$1" | sort -u | sed 's|^|found |' >&2
case ${3:-9} in
    KILL) kill -KILL $$ ;;
    *) exit ${3:-9} ;;
esac
