# Makes files that examples of manual pages name: a repository with branches, and some inputs. Tools
# that are not installed leave their file out.
git init -q -b master . && git add hello.c sum.c threads.c Makefile 2>/dev/null
mkdir -p Documentation && cp poem.txt Documentation/a.txt && cp script.sh git-a.sh
git add hello.c sum.c threads.c Documentation git-a.sh && git commit -qm first && git tag v1.0.0
git checkout -q -b next && sed -i '1s/^/\/* next *\/\n/' sum.c && git commit -qam 'change sum'
git checkout -q -b maint && sed -i '1s/^/\/* maint *\/\n/' threads.c && git commit -qam 'change threads'
git checkout -q -b mytopic master && echo topic >topic && git add topic && git commit -qm topic
git checkout -q master && echo '/* master */' >>hello.c && git commit -qam 'change hello'
for name in a.txt b.txt input.txt f g file plaintext test1; do cp poem.txt $name; done
printf '1 2 + .\n' | tee file1 >file2
cp table.csv example.csv && sed -i '1s/year/shape/' example.csv
cp page.1 man.1
cp page.texi foo.texi
cp page.ms pic.ms && sed 's/^\.PP/.pp/' page.ms >meintro.me
cp graph.dot foo.gv
printf 'print("lua", arg and arg[1])\n' >hello.lua
printf '=head1 NAME\n\nnote - a page\n\n=head1 TEXT\n\nB<bold> C<code>\n\n=cut\n' | tee note.pod >SomeModule.pm
printf 'start: mov ax, 1\n int 21h\n' | tee y.asm | sed 's/int 21h/ret/' >source.asm
printf 'program P { version V { int PING(int) = 1; } = 1; } = 99;\n' >prot.x
printf '%%!\n/Courier findfont 20 scalefont setfont 20 100 moveto (figure) show showpage\n' >figure.ps
ps2pdf figure.ps sample.pdf && cp sample.pdf sample1.pdf && cp sample.pdf sample2.pdf && cp sample.pdf input.pdf
gcc -O1 -o a.out hello.c
zip -qX foo.zip poem.txt words.txt && cp foo.zip storage.zip
aspell dump master -l en 2>/dev/null | head -200 >wordlist.wl
exit 0
