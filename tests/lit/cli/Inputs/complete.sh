# complete.sh SCRIPT WORD ...: what bash's completion by SCRIPT offers for the last word, in a line.
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_hadal
echo $(printf '%s\n' "${COMPREPLY[@]}" | sort)
