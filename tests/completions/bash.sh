# bash bash.sh SCRIPT WORD..: what bash offers for the last word of a command line, one a line.
source "$1"
shift
how=$(complete -p "$1")
function=$(sed 's/.*-F \([^ ]*\).*/\1/' <<<"$how")
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"$function" "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
# With that option readline offers files where the function offers nothing.
if [[ -z "${COMPREPLY[*]}" && "$how" == *"-o default"* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "${!#}")
fi
printf '%s\n' "${COMPREPLY[@]}"
