#!/usr/bin/env bash
# BOLT gives the jump at the end of a block, which it writes anew when it orders blocks, the row of the
# block that followed in the old order.
#
# Here a register is on the stack at the jump, and the row is that of the entry, rsp+8: an unwinder takes
# a saved register for the return address.
#
# Exit status: 0 as written here, 1 otherwise, 2 if something needed is not available.
set -Eeuo pipefail
export LC_ALL=C

unavailable() {
    printf 'unavailable: %s\n' "$1"
    exit 2
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap '[ "$BASH_SUBSHELL" -gt 0 ] || unavailable "line $LINENO failed"' ERR

# Unpacks packages of a Debian suite, with all that they need, below $dir/root. Nothing is
# installed. The mirror is the one that apt knows.
debian() {
    local suite=$1 apt=$dir/apt mirror deb
    shift
    command -v apt-get >/dev/null || unavailable "apt-get"
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(LABEL)' 2>/dev/null |
        awk '$2 == "Debian" && $3 == "Debian" && !uri { uri = $1 } END { print uri }')
    [ -n "$mirror" ] || unavailable "a mirror of Debian; apt-get update may help"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$dir/root"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
        "$mirror" "$suite" >"$apt/sources.list"
    : >"$apt/status"
    local options=(-qq -o "Dir::Etc::SourceList=$apt/sources.list"
        -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$apt" -o "Dir::State::Lists=$apt/lists"
        -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache" -o Debug::NoLocking=1
        -o APT::Sandbox::User= -o APT::Install-Recommends=0 -o Acquire::Languages=none)
    apt-get "${options[@]}" update >"$dir/log" 2>&1 || unavailable "the package list of $suite"
    apt-get "${options[@]}" --download-only -y install "$@" >>"$dir/log" 2>&1 ||
        unavailable "$* in $suite"
    for deb in "$apt"/cache/archives/*.deb; do dpkg -x "$deb" "$dir/root"; done
    rm -rf "$apt"
}

# Runs an unpacked program with the libraries unpacked beside it.
run() {
    "$dir/root/usr/lib64/ld-linux-x86-64.so.2" \
        --library-path "$dir/root/usr/lib/x86_64-linux-gnu" "$dir/root/usr/$1" "${@:2}"
}

command -v gcc >/dev/null || unavailable gcc
debian trixie bolt-19=1:19.1.7-3+b1 binutils-x86-64-linux-gnu=2.44-3

cat >"$dir/program.s" <<'END'
	.text
	.globl _start
	.type _start, @function
_start:	.cfi_startproc
	.cfi_undefined %rip
	mov $2, %edi
	mov $2, %esi
	call ackermann
	mov $60, %eax
	xor %edi, %edi
	syscall
	.cfi_endproc
	.size _start, .-_start
	.p2align 4
	.globl ackermann
	.type ackermann, @function
ackermann:
	.cfi_startproc
	test %rdi, %rdi
	je 4f
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	mov %rdi, %rbx
1:	mov %rbx, %rdi
	sub $1, %rbx
	test %rsi, %rsi
	jne 3f
	mov $1, %esi
2:	test %rbx, %rbx
	jne 1b
	lea 1(%rsi), %rax
	.cfi_remember_state
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
	.p2align 3
3:	.cfi_restore_state
	sub $1, %rsi
	call ackermann
	mov %rax, %rsi
	jmp 2b
	.p2align 4
4:	.cfi_def_cfa_offset 8
	.cfi_restore %rbx
	lea 1(%rsi), %rax
	ret
	.cfi_endproc
	.size ackermann, .-ackermann
END
gcc -nostdlib -static -Wl,--emit-relocs,--eh-frame-hdr "$dir/program.s" -o "$dir/program"
run lib/llvm-19/bin/llvm-bolt "$dir/program" -o "$dir/moved" -reorder-blocks=ext-tsp >"$dir/log" 2>&1 ||
    unavailable "$(tail -n 1 "$dir/log")"

# PROGRAM: the CFA at the jump behind the recursive call.
cfa() {
    local jump
    jump=$(run bin/x86_64-linux-gnu-objdump -d --no-show-raw-insn "$1" |
        awk '/call.*ackermann>/ { near = 3 } near-- > 0 && /jmp/ { sub(":", "", $1); print $1 }' | tail -n 1)
    [ -n "$jump" ] || unavailable "a jump behind the call in $1"
    run bin/x86_64-linux-gnu-readelf --debug-dump=frames-interp "$1" 2>/dev/null |
        awk -v jump="$jump" '
            / FDE / { split($0, part, "pc="); split(part[2], ends, "[.][.]"); here = 0
                      while (length(jump) < 16) jump = "0" jump
                      here = ends[1] <= jump && jump < ends[2] }
            here && /^[0-9a-f]+ / && length($1) == 16 && $1 <= jump { cfa = $2 }
            END { print cfa }'
}
cat <<'END'
expected: the CFA at the jump behind the call is rsp+16 before and after, as rbx is on the stack.
END
run lib/llvm-19/bin/llvm-bolt --version | sed -n 's/^ *//; /LLVM version/p'
before=$(cfa "$dir/program")
after=$(cfa "$dir/moved")
printf 'seen: %s before, %s after\n' "$before" "$after"
[ "$before" = rsp+16 ] || unavailable "rows of GNU as and readelf"
[ "$after" = rsp+8 ] || { echo "changed: not rsp+8"; exit 1; }
echo "still so: BOLT gives the jump the row of the block that followed it"
