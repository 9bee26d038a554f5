# Makes a C project of 30 files, or with the argument c++ one of C++.
case ${1:-c} in c++) ext=cpp cc=${2:-c++} ;; *) ext=c cc=${2:-cc} ;; esac
objects=main.o
declare -i i
for i in {1..29}; do
    objects+=" part$i.o"
    printf 'int part%d(int x)\n{\n    int sum = 0;\n    for (int i = 0; i < x; i++)\n        sum += i %% %d;\n    return sum;\n}\n' $i $((i + 1)) >part$i.$ext
done
{
    for i in {1..29}; do echo "int part$i(int x);"; done
    printf '#ifdef __cplusplus\nextern "C"\n#endif\nint printf(const char *, ...);\nint main(void)\n{\n    int sum = 0;\n'
    for i in {1..29}; do echo "    sum += part$i($i);"; done
    printf '    printf("%%d\\n", sum);\n    return 0;\n}\n'
} >main.$ext
printf 'program: %s\n\t%s -o $@ $^\n%%.o: %%.%s\n\t%s -O1 -c -o $@ $<\n' "$objects" "$cc" $ext "$cc" >Makefile
