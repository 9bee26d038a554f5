# fish fish.fish SCRIPT WORD..: what fish offers for the last word of a command line, one a line.
source $argv[1]
complete -C "$argv[2..]"
