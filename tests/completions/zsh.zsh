# zsh -f zsh.zsh SCRIPT WORD..: what zsh offers for the last word of a command line, as it draws it
# on a terminal. zsh completes only there, so it gets one.
zmodload zsh/zpty
script=$1
shift
folder=$(mktemp -d)
trap 'rm -rf $folder' EXIT
cp $script $folder/_unwind-sim
# The path as a word of the inner shell.
fpath_word=${(q)folder}
zpty shell zsh -f -i
# Ctrl-T shows a mark that is not among what was typed: all before it has been drawn then.
zpty -w shell "PROMPT=; fpath=($fpath_word \$fpath); autoload -U compinit; compinit -u -D
LISTMAX=10000; bindkey '^I' list-choices
drawn() { zle -M all-\$((6 * 7))-drawn }; zle -N drawn; bindkey '^T' drawn"
zpty -n -w shell "$*"$'\t\C-t'
zpty -r -m shell text '*all-42-drawn*'
zpty -d shell
# Without control sequences.
print -r -- $text | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g'
