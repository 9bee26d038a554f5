# bash bash.sh SCRIPT WORD..: what bash offers for the last word of a command line, one a line.
source "$1"
shift
function=$(complete -p "$1" | sed 's/.*-F \([^ ]*\).*/\1/')
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"$function" "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
